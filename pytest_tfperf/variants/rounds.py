"""Run rounds of a comparison, in each of which every variant has one turn."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter

from pytest_tfperf.text import plural
from pytest_tfperf.variants.comparison import NEEDED_ROUNDS, Comparison

SECONDS = 10.0
"""Time for all rounds; those that an interval needs at least may take longer."""
_NARROW = math.log(1.01)

RoundTimes = tuple[dict[str, tuple[float, ...]], tuple[str, ...]]
"""Seconds of a step in each round by variant, and notes."""


class NoMoreSteps(Exception):
    """A variant had no more steps within its turn: the message says why."""


def run_rounds(
    run_turn: Mapping[str, Callable[[], float]],
    max_seconds: float,
    began: float,
    before_each: Callable[[], object] = lambda: None,
) -> RoundTimes:
    """
    Let variants take turns, in random order in each round.

    Rounds end after ten seconds. They end earlier only after 8, 16, 32, … rounds, if all intervals
    are narrow enough. The width decides, not the position, so that ending early does not make
    intervals wrong more often (simulated: 0.5 to 1.3 % of 99 % intervals missed the truth).

    Args:
        run_turn: By variant, runs a turn and returns the seconds of a step, or raises NoMoreSteps.
        max_seconds: Time limit for all rounds since `began`; at least one round always runs.
        began: When the time began, as `perf_counter` has it.
        before_each: Called before each round.
    """
    seed = random.SystemRandom().randrange(2**32)
    order = random.Random(seed)  # noqa: S311 - of turns, and not the user's own
    turns: dict[str, list[float]] = {name: [] for name in run_turn}
    longest, ended = 0.0, ""
    while not ended and _goes_on(turns, perf_counter() - began, longest, max_seconds):
        start = perf_counter()
        before_each()
        try:
            times = {name: run_turn[name]() for name in order.sample(list(run_turn), len(run_turn))}
        except NoMoreSteps as error:
            ended = str(error)
        else:
            for name, step_s in times.items():
                turns[name].append(step_s)
            longest = max(longest, perf_counter() - start)
    notes = (ended,) if ended else _too_few(turns, perf_counter() - began)
    return {name: tuple(seconds) for name, seconds in turns.items()}, (
        *notes,
        f"order of turns: seed {seed}",
    )


def _goes_on(
    turns: Mapping[str, Sequence[float]], spent: float, longest: float, max_seconds: float
) -> bool:
    """Return whether another round runs; `spent` and `longest` are seconds so far."""
    n_rounds = len(next(iter(turns.values())))
    if n_rounds < NEEDED_ROUNDS:
        return not n_rounds or spent + longest <= max_seconds
    if spent + longest > min(SECONDS, max_seconds):
        return False
    is_analysed = n_rounds & (n_rounds - 1) == 0
    return not (
        is_analysed
        and _is_narrow(Comparison(turns={name: tuple(seconds) for name, seconds in turns.items()}))
    )


def _is_narrow(comparison: Comparison) -> bool:
    """Return whether the interval of every variant over the first is within 1 % of its middle."""
    ratios = [comparison.speedup(name) for name in comparison.variants[1:]]
    return all(math.log(ratio.high / ratio.low) / 2 < _NARROW for ratio in ratios)


def _too_few(turns: Mapping[str, Sequence[float]], spent: float) -> tuple[str, ...]:
    """Return what to do if there are too few rounds for an interval."""
    n_rounds = len(next(iter(turns.values())))
    if n_rounds >= NEEDED_ROUNDS:
        return ()
    enough = math.ceil(spent * (NEEDED_ROUNDS + 1) / n_rounds)
    took = f"{plural(n_rounds, 'round')} of turns took {spent:.0f} s"
    return (
        f"{took}; an interval needs {NEEDED_ROUNDS}, "
        f"so tfperf_max_seconds = {enough} or shorter steps",
    )
