"""Noise of turns of the same code, and the slow-down that can be detected within a budget."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_tfperf.stats.sequential_test import (
    INTERIM_SIZES,
    PAIR_SHARE,
    StoppingRule,
    interim_analysis,
    minimum_detectable_change,
    passing_tolerance,
)
from pytest_tfperf.stats.signed_rank import needed_pairs, ratio_interval
from pytest_tfperf.stats.steady_state import find_trend

_PARTS = 4  # of the time that the turns took, whose medians are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The noise in turns of two processes of the same code; all times in seconds."""

    n: int
    """Pairs of turns."""
    step_s: float
    """Median step time of the first process."""
    pair_s: float
    """Mean time of a pair of turns."""
    pair_sd: float | None
    """Standard deviation of the log ratios of single pairs of turns; None for one pair."""
    error: float | None
    """Standard error of one pair (of n it is this ÷ √n); None for too few pairs."""
    over_time: tuple[float, ...]
    """Medians of the first process's step time in the quarters of the time."""
    trend: float | None
    """Relative rise of the step time over all turns; None where it is not significant."""
    ratio: float
    """Estimated ratio of the two processes' step times."""
    low: float | None
    """Lower bound of the ratio, including differences between processes; None for too few pairs."""
    high: float | None
    """Upper bound of the ratio; None for too few pairs."""
    confidence: float
    """Confidence of the interval."""

    @property
    def holds_one(self) -> bool | None:
        """Return whether the interval includes 1, as it should; None where there is no interval."""
        return None if self.low is None or self.high is None else self.low <= 1 <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """Resolution of one test within a budget."""

    tolerance: float
    """Requested tolerance."""
    effective_tolerance: float
    """The tolerance, raised where processes of the same code differ by more."""
    minimum_detectable_change: float
    """The slow-down that is found in 9 of 10 cases."""
    n: int
    """Pairs of turns of each process pair."""


def noise_of(
    played: Sequence[tuple[float, float, bool]], spent_s: float, process_sd: float
) -> Noise:
    """
    Return the noise of turns of two processes of the same code.

    Args:
        played: Seconds of a step in the first and the second process, for each pair of turns; and
            which of them was first.
        spent_s: Seconds that all pairs took.
        process_sd: Standard deviation of the log ratio between process pairs.

    Raises:
        ValueError: If there are no turns.
    """
    if not played:
        raise ValueError("no turns were played")
    logs = [math.log(first / second) for first, second, _ in played]
    times = [first for first, _, _ in played]
    rule = StoppingRule(tolerance=0.0, n_tests=1, process_sd=process_sd)
    trend, found = find_trend(times), interim_analysis(logs, rule, final=True)
    return Noise(
        n=len(played),
        step_s=statistics.median(times),
        pair_s=spent_s / len(played),
        pair_sd=statistics.stdev(logs) if len(logs) > 1 else None,
        error=_error(logs, rule),
        over_time=tuple(statistics.median(part) for part in _parts(times)),
        trend=trend.in_all if trend else None,
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        confidence=found.confidence,
    )


def resolution(noise: Noise, rule: StoppingRule, budget_s: float) -> Resolution | None:
    """
    Return what a test could decide; None for too few turns, measured or within the budget.

    Args:
        noise: Measured noise of turns.
        rule: Rule of the decision.
        budget_s: Seconds of turns of the test.
    """
    half_width = _half_width(noise, rule, budget_s)
    if half_width is None:
        return None
    return Resolution(
        tolerance=rule.tolerance,
        effective_tolerance=rule.effective_tolerance,
        minimum_detectable_change=minimum_detectable_change(half_width, rule),
        n=_affordable(noise, budget_s),
    )


def needed_tolerance(noise: Noise, rule: StoppingRule, budget_s: float) -> float | None:
    """
    Return the tolerance that the same code passes in 9 of 10 cases; None where `resolution` is.

    Args:
        noise: Measured noise of turns.
        rule: Rule of the decision.
        budget_s: Seconds of turns of the test.
    """
    half_width = _half_width(noise, rule, budget_s)
    return None if half_width is None else passing_tolerance(half_width, rule)


def _half_width(noise: Noise, rule: StoppingRule, budget_s: float) -> float | None:
    """Return the final interval's half width, on the log scale, including `process_sd`."""
    n = _affordable(noise, budget_s)
    if noise.error is None or n < needed_pairs(rule.confidence):
        return None
    return rule.z * math.hypot(noise.error / math.sqrt(n), rule.process_sd)


def _affordable(noise: Noise, budget_s: float) -> int:
    """Pairs of turns of one process pair; the rest of the budget belongs to a second one."""
    return min(INTERIM_SIZES[-1], math.floor(budget_s * PAIR_SHARE / noise.pair_s))


def _error(logs: Sequence[float], rule: StoppingRule) -> float | None:
    """
    Return the standard error of one pair.

    The rank interval is z standard errors (Lehmann 1963). Outlying turns count as little as there.
    """
    n = len(logs)
    if n < needed_pairs(rule.confidence):
        return None
    found = ratio_interval(logs, rule.confidence)
    return math.log(found.high / found.low) / 2 / rule.z * math.sqrt(n)


def _parts(times: Sequence[float]) -> list[Sequence[float]]:
    """Quarters of the times, in their order; fewer where there are fewer times."""
    n = min(_PARTS, len(times))
    return [times[len(times) * i // n : len(times) * (i + 1) // n] for i in range(n)]
