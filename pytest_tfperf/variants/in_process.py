"""
Compare variants by turns in one process.

What slows the machine for a while slows all of them. So the ratio within a round is far steadier
than either time, and an interval says by how much.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from pytest_tfperf.capture.blocks import garbage_held_off
from pytest_tfperf.frameworks.in_use import UnfinishedCalls, least_block, start_devices, synchronise
from pytest_tfperf.machine.locks import Exclusive, measuring_alone
from pytest_tfperf.results import Profile
from pytest_tfperf.variants.comparison import Comparison
from pytest_tfperf.variants.outputs import Tolerance
from pytest_tfperf.variants.rounds import SECONDS, RoundTimes, compare_rounds
from pytest_tfperf.variants.steps import Variant, check_variants

__tracebackhide__ = True

_MOST_STEPS = 10_000  # of a turn
_WARM_UP_SHARE = 0.25  # of the seconds, for all variants together
_AGREE = 0.1  # two blocks of the warm-up: as the turns of one step spread on a noisy machine


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
    devices synchronised at its end. `compare_rounds` decides when rounds end.

    Args:
        variants: The variants.
        profiles: Profiles of the variants by name, for the comparison.
        tolerance: Tolerance for the outputs of the first steps; None if they may differ.
        max_seconds: Time for all of it, after the first call of a new variant.
        announce: Shows what runs.
        exclusive: Keeps other processes from measuring meanwhile.

    Raises:
        AssertionError: If the outputs of variants differ.
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
    """
    Run blocks of steps until two agree.

    Args:
        step: The step.
        deadline: When it gives up, as `perf_counter` has it.

    Returns:
        The number of steps of a block, and whether two agreed before the deadline.
    """
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
