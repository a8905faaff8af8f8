"""
Variants taking turns in one process.

What slows the machine for a while slows all of them, so the ratio within a round is far steadier than either time; how much so
is measured, and given as an interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from pytest_tfperf.capture.garbage_collector import garbage_held_off
from pytest_tfperf.machine.locks import Exclusive, measuring_alone
from pytest_tfperf.results import Profile
from pytest_tfperf.tf_runtime import least_block, sync_devices, warm_runtime
from pytest_tfperf.variants.comparison import Comparison
from pytest_tfperf.variants.outputs import Tolerance
from pytest_tfperf.variants.rounds import SECONDS, RoundTimes, run_rounds
from pytest_tfperf.variants.steps import Variant, check_variants

__tracebackhide__ = True

_MOST_STEPS = 10_000  # of a turn
_WARM_UP_SHARE = 0.25  # of the seconds, for all variants together
_AGREE = 0.1  # two blocks of the warm-up: as the turns of one step spread on a noisy machine


@dataclass(frozen=True, slots=True)
class _Repeated:
    """A variant, and how many of its steps a turn has."""

    step: Callable[[], Any]
    size: int

    def turn(self) -> float:
        """Seconds of a step. The first is not timed: it fills the caches that the others' turns have emptied."""
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
    Let variants take turns until every ratio to the first is known within 1 %, or the time is over.

    Each is warmed up first. In a round every variant has one turn, in random order; a turn is one untimed step and then as many as
    last 20 ms, with the devices synchronised at its end. When rounds end is `run_rounds`'s rule.

    Args:
        profiles: What was measured of the variants besides, by name; goes into the comparison as it is.
        tolerance: That the outputs of the first steps must agree within; None if they need not.
        exclusive: Keeps others from measuring meanwhile.
        max_seconds: For all that is done here, after the first two calls of a variant that was not called before.

    Raises:
        CaptureError: If variants train the same variables.
        AssertionError: If their outputs differ.
    """
    warm_runtime()
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
    turns, more = run_rounds(
        {name: one.turn for name, one in repeated.items()}, max_seconds, began, sweep
    )
    return turns, notes + more


def _warmed_up(
    variants: Sequence[Variant], began: float, seconds: float
) -> tuple[dict[str, _Repeated], tuple[str, ...]]:
    """The variants with the sizes of their turns, and notes on those that had not settled in their share of the time."""
    target = least_block()
    repeated, notes = {}, []
    for index, variant in enumerate(variants, 1):
        size, settled = _warm_up(variant.step, target, began + seconds * index / len(variants))
        repeated[variant.name] = _Repeated(variant.step, size)
        if not settled:
            notes.append(
                f"the warm-up of {variant.name} was over before two of its blocks agreed within 10 %"
            )
    return repeated, tuple(notes)


def _warm_up(step: Callable[[], Any], target: float, deadline: float) -> tuple[int, bool]:
    """Run blocks until two agree: how many steps last `target` seconds, and whether they did agree before the deadline."""
    size, before = 1, 0.0
    while True:
        seconds = _timed(step, size)
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
    """Seconds of so many steps, from idle devices to idle devices."""
    sync_devices()
    start = perf_counter()
    for _ in range(size):
        step()
    sync_devices()
    return perf_counter() - start
