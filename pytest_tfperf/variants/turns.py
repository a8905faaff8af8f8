"""
Let variants of a step take turns: in this process, or with data each in a process of its own.

What slows the machine for a while slows all of them. So the ratio within a round is far steadier
than either time, and an interval says by how much. A variant's process runs the same test again, up
to this call of `compare`; this process is the coordinator.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from time import perf_counter
from typing import Any, TypeVar

import pytest

from pytest_tfperf.capture.blocks import garbage_held_off
from pytest_tfperf.checks.limits import SHARED_CPU
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.in_use import (
    UnfinishedCalls,
    least_block,
    start_devices,
    synchronise,
    why_gpus_are_full,
)
from pytest_tfperf.machine.cores import format_cores, pinned, split_cores
from pytest_tfperf.machine.locks import Exclusive, measuring_alone
from pytest_tfperf.quantities import format_quantity
from pytest_tfperf.results import Profile
from pytest_tfperf.text import plural
from pytest_tfperf.turn import TURNS_WITH, Ready
from pytest_tfperf.turns.children import Calls, Replay, Spec, children
from pytest_tfperf.turns.messages import Answer, AtProfile, Measured
from pytest_tfperf.turns.pytest_child import ChildProcess
from pytest_tfperf.turns.rounds import NoMoreSteps, Rounds, run_rounds, run_turn, turn_size
from pytest_tfperf.variants.comparison import BARE, NEEDED_ROUNDS, Comparison, ComparisonCall
from pytest_tfperf.variants.outputs import (
    Tolerance,
    check_outputs,
    leaves_from_json,
    leaves_to_json,
)
from pytest_tfperf.variants.steps import Variant, check_variants

__tracebackhide__ = True

Event = TypeVar("Event", AtProfile, Measured)
SECONDS = 10.0
"""Time for all rounds; those that an interval needs at least may take longer."""
_NARROW = math.log(1.01)
_MOST_STEPS = 10_000  # of a turn
_WARM_UP_SHARE = 0.25  # of the seconds, for all variants together
_AGREE = 0.1  # two blocks of the warm-up: as the turns of one step spread on a noisy machine
# TensorFlow has as many threads as cores: on one core a pipeline is not what it is elsewhere
_LEAST_CORES = 2
_APART = "compare with data runs variants in processes of their own, and "

RoundTimes = tuple[dict[str, tuple[float, ...]], tuple[str, ...]]
"""Seconds of a step in each round by variant, and notes."""


def compare_rounds(
    players: Mapping[str, Callable[[], float]],
    max_seconds: float,
    began: float,
    before_each: Callable[[], object] = lambda: None,
) -> RoundTimes:
    """
    Let variants take turns that return the seconds of a step; see `run_rounds`.

    Rounds end after ten seconds. They end earlier only after 8, 16, 32, … rounds, if all intervals
    are narrow enough. The width decides, not the position, so that ending early does not make
    intervals wrong more often (simulated: 0.5 to 1.3 % of 99 % intervals missed the truth). One
    round always runs, however few of the seconds since `began`, in `perf_counter`'s time, are left.
    """
    seed = random.SystemRandom().randrange(2**32)
    order = random.Random(seed)  # noqa: S311 - of turns, and not the user's own
    ends = [perf_counter()]

    def goes_on(rounds: Rounds[float]) -> bool:
        ends.append(perf_counter())
        longest = max(after - before for before, after in pairwise(ends))
        return _goes_on(_by_variant(players, rounds), ends[-1] - began, longest, max_seconds)

    rounds, ended = run_rounds(players, goes_on, order, before_each)
    turns = _by_variant(players, rounds)
    notes = (ended,) if ended else _too_few(turns, perf_counter() - began)
    return turns, (*notes, f"order of turns: seed {seed}")


def _by_variant(variants: Iterable[str], rounds: Rounds[float]) -> dict[str, tuple[float, ...]]:
    return {name: tuple(one[name] for one in rounds) for name in variants}


def _goes_on(
    turns: Mapping[str, tuple[float, ...]], spent: float, longest: float, max_seconds: float
) -> bool:
    """Return whether another round runs; `spent` and `longest` are seconds so far."""
    n_rounds = len(next(iter(turns.values())))
    if n_rounds < NEEDED_ROUNDS:
        return not n_rounds or spent + longest <= max_seconds
    if spent + longest > min(SECONDS, max_seconds):
        return False
    is_analysed = n_rounds & (n_rounds - 1) == 0
    return not (is_analysed and _is_narrow(Comparison(turns=turns)))


def _is_narrow(comparison: Comparison) -> bool:
    """Return whether the interval of every variant over the first is within 1 % of its middle."""
    ratios = [comparison.speedup(name) for name in comparison.variants[1:]]
    return all(math.log(ratio.high / ratio.low) / 2 < _NARROW for ratio in ratios)


def _too_few(turns: Mapping[str, tuple[float, ...]], spent: float) -> tuple[str, ...]:
    """Return what to do if there are too few rounds for an interval."""
    n_rounds = len(next(iter(turns.values())))
    if n_rounds >= NEEDED_ROUNDS:
        return ()
    enough = math.ceil(spent * (NEEDED_ROUNDS + 1) / n_rounds)
    took = f"{plural(n_rounds, 'round')} of turns took {format_quantity(spent, 's')}"
    return (
        f"{took}; an interval needs {NEEDED_ROUNDS}, "
        f"so tfperf_max_seconds = {enough} or shorter steps",
    )


@dataclass(frozen=True, slots=True)
class _Repeated:
    """A variant, and the number of its steps in a turn."""

    step: Callable[[], Any]
    size: int

    def turn(self) -> float:
        """
        Run one turn, and return the seconds of a step.

        The first step is not timed: it refills the caches that other turns have emptied.
        """
        self.step()
        return _timed(self.step, self.size) / self.size


def compare_steps(
    variants: Sequence[Variant],
    profiles: Mapping[str, Profile],
    tolerance: Tolerance | None,
    max_seconds: float,
    announce: Callable[[str], None] = lambda _: None,
    exclusive: Exclusive = measuring_alone,
) -> Comparison:
    """
    Let variants take turns until every ratio to the first is known within 1 %, or time is over.

    Each is warmed up first. A turn is one untimed step and then as many as last 20 ms, with the
    devices synchronised at its end. `compare_rounds` decides when rounds end. The time begins after
    the first call of a new variant. Outputs that differ by more than `tolerance` raise
    AssertionError.
    """
    start_devices()
    notes = check_variants(variants, tolerance)
    names = ", ".join(variant.name for variant in variants)
    try:
        with exclusive(announce), garbage_held_off() as sweep:
            announce(f"comparing {names}, about {min(SECONDS, max_seconds):.0f} s")
            turns, more = _rounds(variants, max_seconds, sweep)
    finally:
        announce("")
    return Comparison(turns=turns, profiles=profiles, notes=notes + more)


def _rounds(
    variants: Sequence[Variant], max_seconds: float, sweep: Callable[[], object]
) -> RoundTimes:
    began = perf_counter()
    repeated, notes = _warmed_up(variants, began, min(SECONDS, max_seconds) * _WARM_UP_SHARE)
    turns, more = compare_rounds(
        {name: one.turn for name, one in repeated.items()}, max_seconds, began, sweep
    )
    return turns, notes + more


def _warmed_up(
    variants: Sequence[Variant], began: float, seconds: float
) -> tuple[dict[str, _Repeated], tuple[str, ...]]:
    """Return the variants with the sizes of their turns, and notes on those that did not settle."""
    repeated, notes = {}, []
    for index, variant in enumerate(variants, 1):
        size, settled = _warm_up(variant.step, began + seconds * index / len(variants))
        repeated[variant.name] = _Repeated(variant.step, size)
        if not settled:
            notes.append(
                f"the warm-up of {variant.name} was over "
                "before two of its blocks agreed within 10 %"
            )
    return repeated, tuple(notes)


def _warm_up(step: Callable[[], Any], deadline: float) -> tuple[int, bool]:
    """Run blocks of steps until two agree; return their size, and whether two did in time."""
    size, before = 1, 0.0
    while True:
        seconds = _timed(step, size)
        target = least_block(seconds / size)
        if seconds < target and size < _MOST_STEPS:
            size = min(
                max(size + 1, math.ceil(1.2 * size * target / max(seconds, 1e-6))), _MOST_STEPS
            )
        elif abs(seconds / size - before) < _AGREE * before:
            return size, True
        elif perf_counter() > deadline:
            return size, False
        else:
            before = seconds / size


def _timed(step: Callable[[], Any], size: int) -> float:
    """Return the seconds of `size` steps, from idle devices to idle devices."""
    calls = UnfinishedCalls()
    calls.ended()  # none has run: it waits for the devices
    start = perf_counter()
    for _ in range(size):
        step()
        calls.ended()
    synchronise()
    return perf_counter() - start


class VariantProcesses:
    """Runs the variants of one test's calls of `compare`."""

    def __init__(
        self,
        item: pytest.Item,
        shares_cpu: Callable[[], bool],
        announce: Callable[[str], None],
        exclusive: Exclusive,
    ) -> None:
        self._calls = Calls(item, "compare", announce, exclusive)
        self._shares_cpu = shares_cpu
        self._coordinator_cores, self._cores = split_cores(_LEAST_CORES)

    def __call__(self, call: ComparisonCall) -> Comparison:
        """Compare the variants of one call."""
        if why := why_gpus_are_full():
            raise CaptureError(f"{_APART}{why}")
        return _comparison(self._calls.answered(lambda: self._compared(call)))

    def _compared(self, call: ComparisonCall) -> Answer:
        names = ", ".join(call.profiles)
        self._calls.announce(f"comparing {names}: starting a process for each")
        specs = {
            variant: Spec(
                who=f"variant {variant!r}",
                environment=call.environments.get(variant, {}),
                changes={"cores": self._cores},
            )
            for variant in call.profiles
        }
        with children(self._calls.item, list(specs.values())) as started:
            processes = dict(zip(specs, started, strict=True))

            def event_of(variant: str, kind: type[Event]) -> Event:
                child = processes[variant]
                event = child.next_event()
                if not isinstance(event, kind):
                    raise self._calls.ended_early(child, specs[variant], event)
                return event

            readies = {}
            for variant, child in processes.items():
                self._calls.run(child, variant, call.profiles[variant])
                readies[variant] = event_of(variant, AtProfile).ready
            self._calls.announce(f"comparing {names}, about {min(SECONDS, call.max_seconds):.0f} s")
            turns, notes = self._turns(processes, readies, call.max_seconds)
            events = {}
            for variant, child in processes.items():
                child.end_turns()
                events[variant] = event_of(variant, Measured)
        if not any(turns.values()):
            raise CaptureError(f"not one round of turns was run: {notes[0]}")
        notes = (*self._notes(readies), *notes)
        if call.tolerance is not None:
            leaves = {variant: leaves_from_json(one.outputs) for variant, one in events.items()}
            notes += check_outputs(leaves, call.tolerance)
        profiles = {
            variant: _with_others(one.profile, variant, events) for variant, one in events.items()
        }
        return Answer(turns=turns, profiles=profiles, notes=notes)

    def _turns(
        self,
        children: Mapping[str, ChildProcess],
        readies: Mapping[str, Ready],
        max_seconds: float,
    ) -> RoundTimes:
        with pinned(self._coordinator_cores):
            turns = {
                variant: _turn_of(child, variant, readies[variant])
                for variant, child in children.items()
            }
            return compare_rounds(turns, max_seconds, perf_counter())

    def _notes(self, readies: Mapping[str, Ready]) -> tuple[str, ...]:
        """Return where the variants ran, and what makes their steps differ."""
        where = format_cores(self._cores) if self._cores else "any core"
        notes = [f"each variant ran in a process of its own, on {where}"]
        batches = {
            variant: ready.workload.get("batch")
            for variant, ready in readies.items()
            if not variant.endswith(BARE)  # it is given one batch of the other variant
        }
        if len(set(batches.values())) > 1:
            sizes = ", ".join(
                f"{'unknown' if batch is None else batch} of {variant}"
                for variant, batch in batches.items()
            )
            notes.append(
                f"batch sizes differ ({sizes}), so that a step is not the same work: "
                "compare throughput"
            )
        return (*notes, SHARED_CPU) if self._shares_cpu() else tuple(notes)


def compare_here(replay: Replay, call: ComparisonCall) -> Comparison:
    """Answer a call in a variant's process; the one that it is for does not return."""
    answer = replay.earlier(call.profiles)
    if answer is None:
        profile, leaves = call.measure(replay.part.name)
        sent = replace(profile, result=None)
        replay.end(Measured(profile=sent, outputs=leaves_to_json(leaves)))
    return _comparison(answer)


def _turn_of(child: ChildProcess, variant: str, ready: Ready) -> Callable[[], float]:
    """Return what runs a turn of a variant."""
    chance = random.SystemRandom()

    def run() -> float:
        try:
            return run_turn(child, turn_size([ready], chance), ready).step_s
        except NoMoreSteps:
            raise NoMoreSteps(
                f"the data of {variant} ended within a turn, and cannot be started again"
            ) from None

    return run


def _with_others(profile: Profile, variant: str, variants: Iterable[str]) -> Profile:
    """Return the profile with the names of the variants that it took turns with."""
    value = profile.value("step_time")
    others = [name for name in variants if name != variant]
    step_time = value.changed(detail={**value.detail, TURNS_WITH: others})
    return replace(profile, metrics={**profile.metrics, "step_time": step_time})


def _comparison(answer: Answer) -> Comparison:
    return Comparison(turns=answer.turns, profiles=answer.profiles, notes=answer.notes)
