"""How noisy turns of the same code are, and the change that a decision could find in them within a budget."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_tfperf.stats.sequential_test import (
    LOOKS,
    PAIR_SHARE,
    Rule,
    look,
    passing_tolerance,
    smallest_change,
)
from pytest_tfperf.stats.signed_rank import needed_pairs, ratio_interval
from pytest_tfperf.stats.steady_state import find_trend

_PARTS = 4  # of the time that the turns took, whose medians are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """
    What turns of two processes of the same code show, all times in seconds.

    `spread` is the standard deviation of the log ratios of single pairs of turns, None of one pair. `error` is the standard error
    that one pair stands for: that of n is it ÷ √n; None where there are too few for an interval. `over_time` are the medians of one
    side's step in the quarters of the time, `trend` by how much it rose over all of it where that is no chance. `ratio`, `low` and
    `high` are what a decision makes of the turns, at this confidence and with the spread of process pairs; None are too few turns.
    """

    n: int
    step_s: float
    pair_s: float
    spread: float | None
    error: float | None
    over_time: tuple[float, ...]
    trend: float | None
    ratio: float
    low: float | None
    high: float | None
    confidence: float

    @property
    def holds_one(self) -> bool | None:
        """Whether the interval holds 1, as it should; None where there is none."""
        return None if self.low is None or self.high is None else self.low <= 1 <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """
    What one test could decide within a budget at a tolerance: `held` is the tolerance that is held, raised where process pairs
    differ by more, and `smallest` the slow-down that is found in 9 of 10 cases, from `n` pairs of turns of either process pair.
    """

    tolerance: float
    held: float
    smallest: float
    n: int


def noise_of(played: Sequence[tuple[float, float, bool]], spent_s: float, spread: float) -> Noise:
    """
    The noise of turns of the same code on both sides.

    Args:
        played: The seconds of a step on either side, for each pair of turns; and who was first.
        spent_s: What all of them took.
        spread: Standard deviation of the log ratio between process pairs.

    Raises:
        ValueError: If there are no turns.
    """
    if not played:
        raise ValueError("no turns were played")
    logs = [math.log(one / other) for one, other, _ in played]
    times = [one for one, _, _ in played]
    rule = Rule(tolerance=0.0, n_tests=1, spread=spread)
    trend, seen = find_trend(times), look(logs, rule, final=True)
    return Noise(
        n=len(played),
        step_s=statistics.median(times),
        pair_s=spent_s / len(played),
        spread=statistics.stdev(logs) if len(logs) > 1 else None,
        error=_error(logs, rule),
        over_time=tuple(statistics.median(part) for part in _parts(times)),
        trend=trend.in_all if trend else None,
        ratio=seen.ratio,
        low=seen.low,
        high=seen.high,
        confidence=seen.confidence,
    )


def resolution(noise: Noise, rule: Rule, budget_s: float) -> Resolution | None:
    """What a test with this rule could decide; None where there are too few turns, measured or within the budget."""
    half = _half_width(noise, rule, budget_s)
    if half is None:
        return None
    return Resolution(
        tolerance=rule.tolerance,
        held=rule.held,
        smallest=smallest_change(half, rule),
        n=_affordable(noise, budget_s),
    )


def needed_tolerance(noise: Noise, rule: Rule, budget_s: float) -> float | None:
    """The tolerance that the same code passes in 9 of 10 cases; None where `resolution` is."""
    half = _half_width(noise, rule, budget_s)
    return None if half is None else passing_tolerance(half, rule)


def _half_width(noise: Noise, rule: Rule, budget_s: float) -> float | None:
    """That of the interval at the last look, on the log scale, with the spread of process pairs as `decision.look` adds it."""
    n = _affordable(noise, budget_s)
    if noise.error is None or n < needed_pairs(rule.confidence):
        return None
    return rule.z * math.hypot(noise.error / math.sqrt(n), rule.spread)


def _affordable(noise: Noise, budget_s: float) -> int:
    """How many pairs of turns one pair of processes may have: the other part of the budget is a second one's."""
    return min(LOOKS[-1], math.floor(budget_s * PAIR_SHARE / noise.pair_s))


def _error(logs: Sequence[float], rule: Rule) -> float | None:
    """The standard error that the rank interval is z of (Lehmann 1963), × √n: wild turns count in it as little as they do there."""
    n = len(logs)
    if n < needed_pairs(rule.confidence):
        return None
    found = ratio_interval(logs, rule.confidence)
    return math.log(found.high / found.low) / 2 / rule.z * math.sqrt(n)


def _parts(times: Sequence[float]) -> list[Sequence[float]]:
    """The quarters of the times, in their order; fewer where there are fewer times."""
    n = min(_PARTS, len(times))
    return [times[len(times) * i // n : len(times) * (i + 1) // n] for i in range(n)]
