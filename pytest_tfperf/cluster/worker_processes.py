"""
Run the workers of a job, each in a process of its own.

A worker's process runs the same test again, up to this call of `workers`. All run at the same time,
since they wait for each other in collectives.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest

from pytest_tfperf.child.cleanup import Cleanup
from pytest_tfperf.child.process import READY_S, ChildProcess, ProcessLost
from pytest_tfperf.child.same_test import SameTest
from pytest_tfperf.child.server import CoordinatedServer
from pytest_tfperf.cluster.worker_calls import WorkersCall, cluster_environments, who
from pytest_tfperf.errors import CaptureError, PairedError
from pytest_tfperf.machine.locks import Exclusive
from pytest_tfperf.results import Profile
from pytest_tfperf.values import Json

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


class WorkerProcesses:
    """
    Runs the workers of one test's calls of `workers`; see `worker_calls.RunWorkers`.

    Args:
        item: The test.
        announce: Shows what runs.
        exclusive: Keeps other processes from measuring meanwhile.
    """

    def __init__(
        self, item: pytest.Item, announce: Callable[[str], None], exclusive: Exclusive
    ) -> None:
        self._test = SameTest(item, "workers")
        self._announce, self._exclusive = announce, exclusive
        self._earlier: list[Json] = []

    def __call__(self, call: WorkersCall) -> tuple[Profile, ...]:
        """Run the workers of one call, and return their profiles."""
        try:
            with self._exclusive(self._announce):
                profiles = self._with_processes(call)
        except CaptureError as error:  # the test may expect it, and go on
            self._earlier.append({"error": str(error)})
            raise
        self._earlier.append({"profiles": [profile.to_json() for profile in profiles]})
        return profiles

    def _with_processes(self, call: WorkersCall) -> tuple[Profile, ...]:
        """Run the workers, and again if TensorFlow crashes in one of them."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._attempt(call)
            except ProcessLost as error:
                if error.status not in _CRASHES or attempt == _ATTEMPTS:
                    raise CaptureError(str(error)) from None
            except PairedError as error:
                raise CaptureError(str(error)) from None
        raise AssertionError

    def _attempt(self, call: WorkersCall) -> tuple[Profile, ...]:
        cleanup, children = Cleanup(), list[ChildProcess]()
        try:
            return self._measured(call, cleanup, children)
        finally:
            for child in children:
                child.kill()  # one that is left may wait in a collective for one that has ended
            cleanup.close()
            self._announce("")

    def _measured(
        self, call: WorkersCall, cleanup: Cleanup, children: list[ChildProcess]
    ) -> tuple[Profile, ...]:
        """Run the workers; `children` gets a process for each."""
        n_workers = len(call.names)
        self._announce(f"starting {n_workers} workers")
        for index, environment in enumerate(cluster_environments(n_workers)):
            children.append(self._test.start(who(index), cleanup, environment, pauses=False))
        for child in children:
            self._test.await_collected(child)
        self._announce(f"measuring {n_workers} workers")
        for name, child in zip(call.names, children, strict=True):
            part = {"worker": name, "profile": None, "earlier": list(self._earlier)}
            child.run(self._test.key, None, part)
        events = self._events(children)
        for child in children:  # all end at the same time, as TensorFlow wants it
            child.send(done=True)
        for child in children:
            child.close()
        return tuple(Profile.from_json(event["profiled"]) for event in events.values())

    def _events(self, children: list[ChildProcess]) -> Mapping[int, dict[str, Any]]:
        """
        Wait for the profiles of all workers, in the order of the workers.

        Raises:
            CaptureError: As soon as one fails, since the others wait for it.
            ProcessLost: As soon as one has ended, or if one does not answer in time.
        """
        found: dict[int, dict[str, Any]] = {}
        deadline = time.monotonic() + READY_S
        while len(found) < len(children):
            for index, child in enumerate(children):
                if index in found:
                    continue
                try:
                    event = child.event_within(_GLANCE_S)
                except TimeoutError:
                    if time.monotonic() > deadline:
                        how = f"did not answer within {READY_S:.0f} s"
                        raise ProcessLost(child.label, how, child.output()) from None
                    continue
                if "profiled" not in event:
                    _raise_lost([other for other in children if other is not child])
                    raise self._test.failed(child, who(index), event)
                found[index] = event
        return dict(sorted(found.items()))


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


class WorkerClient:
    """
    Answers calls of `workers` in a worker's process, up to the one that the process is for.

    See `worker_calls.RunWorkers`.
    """

    def __init__(self, server: CoordinatedServer, part: Mapping[str, Any]) -> None:
        self._server, self._name = server, part["worker"]
        self._earlier = list(part["earlier"])

    def __call__(self, call: WorkersCall) -> tuple[Profile, ...]:
        """Answer a call; the one that the process is for does not return."""
        if self._earlier:
            earlier = self._earlier.pop(0)
            if "error" in earlier:
                raise CaptureError(earlier["error"])
            return tuple(Profile.from_json(profile) for profile in earlier["profiles"])
        if self._name not in call.names:
            others = ", ".join(call.names)
            raise CaptureError(
                f"run again, this call of workers has other profiles: {others} and no {self._name}"
            )
        self._server.ask(profiled=call.measure().to_json())
        pytest.exit("this process has done its work")
