"""Run rounds of a comparison, in each of which every variant has one turn."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from time import perf_counter

from pytest_tfperf.text import plural
from pytest_tfperf.turns.rounds import Rounds, run_rounds
from pytest_tfperf.variants.comparison import NEEDED_ROUNDS, Comparison

SECONDS = 10.0
"""Time for all rounds; those that an interval needs at least may take longer."""
_NARROW = math.log(1.01)

RoundTimes = tuple[dict[str, tuple[float, ...]], tuple[str, ...]]
"""Seconds of a step in each round by variant, and notes."""


def compare_rounds(
    players: Mapping[str, Callable[[], float]],
    max_seconds: float,
    began: float,
    before_each: Callable[[], object] = lambda: None,
) -> RoundTimes:
    """
    Let variants take turns; see `run_rounds`.

    Rounds end after ten seconds. They end earlier only after 8, 16, 32, … rounds, if all intervals
    are narrow enough. The width decides, not the position, so that ending early does not make
    intervals wrong more often (simulated: 0.5 to 1.3 % of 99 % intervals missed the truth).

    Args:
        players: By variant, runs a turn and returns the seconds of a step, or raises NoMoreSteps.
        max_seconds: Time limit for all rounds since `began`; at least one round always runs.
        began: When the time began, as `perf_counter` has it.
        before_each: Called before each round.
    """
    seed = random.SystemRandom().randrange(2**32)
    order = random.Random(seed)  # noqa: S311 - of turns, and not the user's own
    ends = [perf_counter()]

    def goes_on(rounds: Rounds) -> bool:
        ends.append(perf_counter())
        longest = max(after - before for before, after in pairwise(ends))
        return _goes_on(_by_variant(players, rounds), ends[-1] - began, longest, max_seconds)

    rounds, ended = run_rounds(players, goes_on, order, before_each)
    turns = _by_variant(players, rounds)
    notes = (ended,) if ended else _too_few(turns, perf_counter() - began)
    return turns, (*notes, f"order of turns: seed {seed}")


def _by_variant(variants: Iterable[str], rounds: Rounds) -> dict[str, tuple[float, ...]]:
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
    took = f"{plural(n_rounds, 'round')} of turns took {spent:.0f} s"
    return (
        f"{took}; an interval needs {NEEDED_ROUNDS}, "
        f"so tfperf_max_seconds = {enough} or shorter steps",
    )
