"""
`tf_profile.workers`: the workers of a MultiWorkerMirroredStrategy, each in a process of its own.

A worker's process runs the same test again, up to this call of `workers`. All run at the same time,
since they wait for each other in collectives.
"""

from __future__ import annotations

import json
import signal
import socket
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

import pytest

from pytest_tfperf.machine.locks import Exclusive
from pytest_tfperf.op_types import COLLECTIVES
from pytest_tfperf.quantities import COUNT, RATIO, SECONDS, format_quantity
from pytest_tfperf.results import Profile
from pytest_tfperf.turns.children import Calls, Replay, Spec, children
from pytest_tfperf.turns.messages import Answer, Done, Measured
from pytest_tfperf.turns.pytest_child import READY_S, ChildProcess, ProcessLost
from pytest_tfperf.values import PART_TITLES, PARTS, Column, Source, Table, Value

__tracebackhide__ = True

_ATTEMPTS, _CRASHES = 5, (signal.SIGSEGV.name, signal.SIGABRT.name)
"""
Runs of a call, and the ends of a worker after which there is another one.

TensorFlow 2.21 crashed in 6 of 195 stops of its profiler, in a cluster of three workers: in 4
of 20 calls. TraceMeRecorder::Consume (traceme_recorder.cc of tsl) keeps pointers to events that end
in another thread than they began in, as those of collectives do. The vector of all threads' events
copies its deques when it grows, since a deque of libstdc++ may throw when it is moved. After that,
HandleCrossThreadEvents writes into freed memory. Such events of the whole trace count, so a pause
before the stop does not help: with one of 0.3 s, 6 of 246 stops crashed.
"""
_GLANCE_S = 0.05
"""Seconds to wait for one worker before a look at the others."""
_DEATH_S = 1.0
"""Seconds in which the death of a worker is seen after the error that it caused in another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersCall:
    """One call of `tf_profile.workers`."""

    names: Sequence[str]
    """Names of the profiles, one a worker, the chief's first."""
    measure: Callable[[], Profile]


def who(index: int) -> str:
    """Return the name of a worker in messages and profiles."""
    return f"worker {index}"


class WorkerProcesses:
    """Runs the workers of one test's calls of `workers`."""

    def __init__(
        self, item: pytest.Item, announce: Callable[[str], None], exclusive: Exclusive
    ) -> None:
        self._calls = Calls(item, "workers", announce, exclusive)

    def __call__(self, call: WorkersCall) -> tuple[Profile, ...]:
        """Run the workers of one call, and return their profiles."""
        return tuple(self._calls.answered(lambda: self._measured(call)).profiles.values())

    def _measured(self, call: WorkersCall) -> Answer:
        """Run the workers, and again if TensorFlow crashes in one of them."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._attempt(call)
            except ProcessLost as error:
                if error.status not in _CRASHES:
                    raise
        return self._attempt(call)

    def _attempt(self, call: WorkersCall) -> Answer:
        n_workers = len(call.names)
        specs = [
            Spec(who=who(index), environment=environment, changes={"pauses": False})
            for index, environment in enumerate(cluster_environments(n_workers))
        ]
        self._calls.announce(f"starting {n_workers} workers")
        # after an error, one that is left may wait in a collective for one that has ended
        with children(self._calls.item, specs, grace_s=0.0) as started:
            self._calls.announce(f"measuring {n_workers} workers")
            for name, child in zip(call.names, started, strict=True):
                self._calls.run(child, name)
            events = self._events(started, specs)
            for child in started:  # all end at the same time, as TensorFlow wants it
                child.send(Done())
        profiles = (event.profile for event in events)
        return Answer(profiles=dict(zip(call.names, profiles, strict=True)))

    def _events(self, started: Sequence[ChildProcess], specs: Sequence[Spec]) -> list[Measured]:
        """Return the profiles in order, or raise when one fails: the others wait for it."""
        found: dict[int, Measured] = {}
        deadline = time.monotonic() + READY_S
        while len(found) < len(started):
            for index, child in enumerate(started):
                if index in found:
                    continue
                try:
                    event = child.event_within(_GLANCE_S)
                except TimeoutError:
                    if time.monotonic() > deadline:
                        how = f"did not answer within {READY_S:.0f} s"
                        raise ProcessLost(child.label, how, child.output()) from None
                    continue
                if not isinstance(event, Measured):
                    _raise_lost([other for other in started if other is not child])
                    raise self._calls.ended_early(child, specs[index], event)
                found[index] = event
        return [found[index] for index in sorted(found)]


def _raise_lost(children: Sequence[ChildProcess]) -> None:
    """
    Raise ProcessLost if one of these processes has ended.

    The death of a worker makes collectives of the others fail, within 0.3 s in TensorFlow 2.21. On
    a busy machine their errors arrive before it is seen.
    """
    deadline = time.monotonic() + _DEATH_S
    for child in children:
        with suppress(TimeoutError):
            child.event_within(max(0.0, deadline - time.monotonic()))


def work_here(replay: Replay, call: WorkersCall) -> tuple[Profile, ...]:
    """Answer a call in a worker's process; the one that it is for does not return."""
    answer = replay.earlier({name: name for name in call.names})
    if answer is None:
        replay.end(Measured(profile=replace(call.measure(), result=None)))
    return tuple(answer.profiles.values())


def cluster_environments(n_workers: int) -> list[dict[str, str]]:
    """
    Return environment variables of each worker, by which TensorFlow finds the others.

    `TF_CONFIG` is what `tf.distribute.cluster_resolver.TFConfigClusterResolver` reads. The workers
    listen on ports of the loopback interface that are free now.
    """
    addresses = [f"127.0.0.1:{port}" for port in _free_ports(n_workers)]
    return [
        {
            "TF_CONFIG": json.dumps(
                {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            )
        }
        for index in range(n_workers)
    ]


def _free_ports(n: int) -> list[int]:
    """Return different ports that nobody listens on; they are all held until each is known."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(n)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


WORKERS = "workers"
"""Key of the table."""
_SKEW = "step_skew"
_HOST_COMPUTE, _COLLECTIVE = "host_compute", "collective"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """The mean traced step of a worker, in seconds."""

    period_s: float
    """Its period."""
    collective_s: float
    """Time in collectives, in which it also waits for the others."""
    own_s: Mapping[str, float]
    """Its other time, by part."""

    @property
    def work_s(self) -> float:
        """Time out of collectives."""
        return self.period_s - self.collective_s


def summarised(profiles: Sequence[Profile]) -> tuple[Profile, ...]:
    """
    Add `step_skew` to the profiles of all workers, and a table of them to the first.

    Workers of synchronous training wait for each other in collectives, so their periods are alike.
    The slow one is the one that works longest outside of them.
    """
    shares = [_share(profile) for profile in profiles]
    skew = _skew(shares)
    found = [replace(profile, metrics={**profile.metrics, _SKEW: skew}) for profile in profiles]
    table = _table(profiles, shares)
    return (replace(found[0], tables={**found[0].tables, WORKERS: table}), *found[1:])


def _share(profile: Profile) -> _Share | None:
    """Return the mean step; None if the trace shows no step or no collective."""
    n_steps = len(profile.steps)
    if not n_steps:
        return None
    parts = {part: sum(s.parts_s.get(part, 0.0) for s in profile.steps) / n_steps for part in PARTS}
    on_host_s = min(_on_host_s(profile.tables.get("host_ops")), parts[_HOST_COMPUTE])
    collective_s = parts.pop(_COLLECTIVE) + on_host_s
    if not collective_s:
        return None
    parts[_HOST_COMPUTE] -= on_host_s
    period_s = sum(step.period_s for step in profile.steps) / n_steps
    return _Share(period_s=period_s, collective_s=collective_s, own_s=parts)


def _on_host_s(ops: Table | None) -> float:
    """Return the time of a step in collective ops of the host."""
    rows = ops.records() if ops is not None else []
    return sum(float(row["self_s"]) for row in rows if str(row["type"]).startswith(COLLECTIVES))


def _skew(shares: Sequence[_Share | None]) -> Value:
    """Return slowest ÷ median worker − 1, by their time outside of collectives."""
    known = [share for share in shares if share is not None]
    missing = [who(index) for index, share in enumerate(shares) if share is None]
    if missing:
        return Value.unknown(
            _SKEW,
            f"the trace of {', '.join(missing)} shows no collective, in which workers wait for "
            "each other",
        )
    work = [share.work_s for share in known]
    middle = statistics.median(work)
    if middle <= 0:
        return Value.unknown(_SKEW, "the workers do nothing but wait for each other")
    slowest = max(range(len(work)), key=work.__getitem__)
    return Value.of(
        _SKEW,
        max(work) / middle - 1,
        Source.TRACE,
        n_workers=len(work),
        where=_cause(known, slowest),
    )


def _cause(shares: Sequence[_Share], slowest: int) -> str:
    """Name the slowest worker, and what it does longer than the others."""
    others = [share for index, share in enumerate(shares) if index != slowest]
    own = shares[slowest]
    more = {
        part: seconds - statistics.median(other.own_s[part] for other in others)
        for part, seconds in own.own_s.items()
    }
    part = max(more, key=more.__getitem__)
    usual_s = statistics.median(other.work_s for other in others)
    return (
        f"{who(slowest)} is the slowest: {format_quantity(own.work_s, SECONDS)} of a step outside "
        f"of collectives, the others {format_quantity(usual_s, SECONDS)}; most of the difference "
        f"is {PART_TITLES[part]} (+{format_quantity(max(more[part], 0.0), SECONDS)})"
    )


def _table(profiles: Sequence[Profile], shares: Sequence[_Share | None]) -> Table:
    columns = [
        Column("worker", "worker"),
        Column("steps", "traced steps", COUNT),
        Column("period", "period", SECONDS),
        Column("input", "input", SECONDS),
        Column("collective", "in collectives", SECONDS),
        Column("work", "outside of them", SECONDS),
        Column("over_median", "more than the median", RATIO),
    ]
    work = [share.work_s for share in shares if share is not None]
    middle = statistics.median(work) if len(work) == len(shares) else 0.0
    rows = [
        (
            who(index),
            len(profile.steps),
            share.period_s if share else None,
            share.own_s["input"] if share else None,
            share.collective_s if share else None,
            share.work_s if share else None,
            share.work_s / middle - 1 if share and middle > 0 else None,
        )
        for index, (profile, share) in enumerate(zip(profiles, shares, strict=True))
    ]
    return Table.of("workers, by their traced steps", columns, rows)
