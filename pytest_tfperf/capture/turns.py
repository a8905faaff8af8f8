"""
Variants taking turns in one process.

What slows the machine for a while slows all of them, so the ratio within a round is far steadier than either time; how much so
is measured, and given as an interval.
"""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from pytest_tfperf.capture.environment import sync_cost, sync_devices, warm_runtime
from pytest_tfperf.capture.outputs import Tolerance
from pytest_tfperf.capture.variants import Variant, check_variants
from pytest_tfperf.comparison import NEEDED_ROUNDS, Comparison
from pytest_tfperf.results import Profile

_TURN_S = 0.02  # a turn is at least this long, and this many device synchronisations
_SYNCS_PER_TURN = 50
_MOST_STEPS = 10_000  # of a turn
_SECONDS = 10.0  # for all rounds; those that an interval needs at least may take up to max_seconds
_WARM_UP_SHARE = 0.25  # of the seconds, for all variants together
_AGREE = 0.1  # two blocks of the warm-up: as the turns of one step spread on a noisy machine
_NARROW = math.log(1.01)


@dataclass(frozen=True, slots=True)
class _Player:
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
) -> Comparison:
    """
    Let variants take turns until every ratio to the first is known within 1 %, or the time is over.

    Each is warmed up first. In a round every variant has one turn, in random order; a turn is one untimed step and then as many as
    last 20 ms, with the devices synchronised at its end. Rounds end after ten seconds, and before that only after 8, 16, 32, …
    rounds, where all intervals are narrow enough: their width decides and not where they lie, so that ending early does not make
    them wrong more often (simulated: 0.5 to 1.3 % of 99 % intervals missed the truth).

    Args:
        profiles: What was measured of the variants besides, by name; goes into the comparison as it is.
        tolerance: That the outputs of the first steps must agree within; None if they need not.
        max_seconds: For all that is done here, after the first two calls of a variant that was not called before.

    Raises:
        CaptureError: If variants train the same variables.
        AssertionError: If their outputs differ.
    """
    warm_runtime()
    notes = check_variants(variants, tolerance)
    names = ", ".join(variant.name for variant in variants)
    announce(f"comparing {names}, about {min(_SECONDS, max_seconds):.0f} s")
    try:
        with _garbage_kept() as sweep:
            turns, more = _rounds(variants, max_seconds, sweep)
    finally:
        announce("")
    return Comparison(turns=turns, profiles=profiles, notes=notes + more)


def _rounds(
    variants: Sequence[Variant], max_seconds: float, sweep: Callable[[], object]
) -> tuple[dict[str, tuple[float, ...]], tuple[str, ...]]:
    """The seconds of a step in each round by variant, and notes."""
    seed = random.SystemRandom().randrange(2**32)
    order = random.Random(seed)  # noqa: S311 - of turns, and not the user's own
    began = perf_counter()
    players, notes = _warmed_up(variants, began, min(_SECONDS, max_seconds) * _WARM_UP_SHARE)
    turns: dict[str, list[float]] = {name: [] for name in players}
    longest = 0.0
    while _goes_on(turns, perf_counter() - began, longest, max_seconds):
        start = perf_counter()
        sweep()
        for name in order.sample(list(players), len(players)):
            turns[name].append(players[name].turn())
        longest = max(longest, perf_counter() - start)
    notes += _too_few(turns, perf_counter() - began)
    return {name: tuple(seconds) for name, seconds in turns.items()}, (*notes, f"order of turns: seed {seed}")


def _too_few(turns: Mapping[str, Sequence[float]], spent: float) -> tuple[str, ...]:
    """What to do where there are too few rounds for an interval."""
    n_rounds = len(next(iter(turns.values())))
    if n_rounds >= NEEDED_ROUNDS:
        return ()
    enough = math.ceil(spent * (NEEDED_ROUNDS + 1) / n_rounds)
    took = f"{n_rounds} round{'s' * (n_rounds > 1)} of turns took {spent:.0f} s"
    return (f"{took}; an interval needs {NEEDED_ROUNDS}, so tfperf_max_seconds = {enough} or shorter steps",)


def _warmed_up(variants: Sequence[Variant], began: float, seconds: float) -> tuple[dict[str, _Player], tuple[str, ...]]:
    """The variants with the sizes of their turns, and notes on those that had not settled in their share of the time."""
    target = max(_TURN_S, _SYNCS_PER_TURN * sync_cost())
    players, notes = {}, []
    for index, variant in enumerate(variants, 1):
        size, settled = _warm_up(variant.step, target, began + seconds * index / len(variants))
        players[variant.name] = _Player(variant.step, size)
        if not settled:
            notes.append(f"the warm-up of {variant.name} was over before two of its blocks agreed within 10 %")
    return players, tuple(notes)


def _warm_up(step: Callable[[], Any], target: float, deadline: float) -> tuple[int, bool]:
    """Run blocks until two agree: how many steps last `target` seconds, and whether they did agree before the deadline."""
    size, before = 1, 0.0
    while True:
        seconds = _timed(step, size)
        if seconds < target and size < _MOST_STEPS:
            size = min(max(size + 1, math.ceil(1.2 * size * target / max(seconds, 1e-6))), _MOST_STEPS)
        elif abs(seconds / size - before) < _AGREE * before:
            return size, True
        elif perf_counter() > deadline:
            return size, False
        else:
            before = seconds / size


def _goes_on(turns: Mapping[str, Sequence[float]], spent: float, longest: float, max_seconds: float) -> bool:
    """Whether there is to be another round, where the longest so far took `longest` seconds."""
    n_rounds = len(next(iter(turns.values())))
    if n_rounds < NEEDED_ROUNDS:
        return not n_rounds or spent + longest <= max_seconds
    if spent + longest > min(_SECONDS, max_seconds):
        return False
    is_a_look = n_rounds & (n_rounds - 1) == 0
    return not (is_a_look and _is_narrow(Comparison(turns={name: tuple(seconds) for name, seconds in turns.items()})))


def _is_narrow(comparison: Comparison) -> bool:
    """Whether the interval of every variant against the first is within 1 % of its middle."""
    ratios = [comparison.speedup(name) for name in comparison.variants[1:]]
    return all(math.log(ratio.high / ratio.low) / 2 < _NARROW for ratio in ratios)


def _timed(step: Callable[[], Any], size: int) -> float:
    """Seconds of so many steps, from idle devices to idle devices."""
    sync_devices()
    start = perf_counter()
    for _ in range(size):
        step()
    sync_devices()
    return perf_counter() - start


@contextmanager
def _garbage_kept() -> Iterator[Callable[[], object]]:
    """
    Within the context Python's garbage collector does not run by itself; as it was afterwards.

    Gives what collects between rounds: only what was made since the last time, which is quick.
    """
    if not gc.isenabled():
        yield lambda: None
        return
    gc.collect()
    gc.disable()
    try:
        yield lambda: gc.collect(1)
    finally:
        gc.enable()
