"""Noise of turns of the same code, and the slow-down that can be detected within a budget."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from pytest_tfperf.stats.sequential import (
    LEAST_TURNS,
    TURN_SIZES,
    StoppingRule,
    minimum_detectable_change,
    pair_estimate,
    passing_tolerance,
    standard_error,
)
from pytest_tfperf.stats.steady_state import find_trend

_CONFIDENCE = 0.99  # of the interval of the ratio of the two processes
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
    n_pairs: int
    """Process pairs."""


def noise_of(
    played: Sequence[tuple[float, float, bool]], spent_s: float, process_sd: float
) -> Noise:
    """
    Return the noise of turns of two processes of the same code.

    `played` has the seconds of a step in both for each pair of turns, and which was first;
    `process_sd` is of the log ratio between process pairs.
    """
    if not played:
        raise ValueError("no turns were played")
    logs = [math.log(first / second) for first, second, _ in played]
    times = [first for first, _, _ in played]
    trend, found, error = find_trend(times), pair_estimate(logs), standard_error(logs)
    half = None if error is None else _half_width(error, process_sd)
    return Noise(
        n=len(played),
        step_s=statistics.median(times),
        pair_s=spent_s / len(played),
        pair_sd=statistics.stdev(logs) if len(logs) > 1 else None,
        error=None if error is None else error * math.sqrt(len(logs)),
        over_time=tuple(statistics.median(part) for part in _parts(times)),
        trend=trend.in_all if trend else None,
        ratio=found.ratio,
        low=None if half is None else found.ratio / half,
        high=None if half is None else found.ratio * half,
        confidence=_CONFIDENCE,
    )


def resolution(noise: Noise, rule: StoppingRule, budget_s: float) -> Resolution | None:
    """Return what a test could decide; None for too few turns, measured or within the budget."""
    error = _common_error(noise, rule, budget_s)
    if error is None:
        return None
    return Resolution(
        tolerance=rule.tolerance,
        effective_tolerance=rule.effective_tolerance,
        minimum_detectable_change=minimum_detectable_change(error, rule, rule.n_pairs),
        n=_affordable(noise, rule, budget_s),
        n_pairs=rule.n_pairs,
    )


def needed_tolerance(noise: Noise, rule: StoppingRule, budget_s: float) -> float | None:
    """Return the tolerance that the same code passes in 9 of 10 cases; None as `resolution`."""
    error = _common_error(noise, rule, budget_s)
    return None if error is None else passing_tolerance(error, rule, rule.n_pairs)


def _half_width(error: float, process_sd: float) -> float:
    """Return half of the interval of one process pair's ratio, as a factor."""
    z = NormalDist().inv_cdf((1 + _CONFIDENCE) / 2)
    return math.exp(z * math.hypot(error, process_sd))


def _common_error(noise: Noise, rule: StoppingRule, budget_s: float) -> float | None:
    """Return the standard error of the estimate over all planned process pairs."""
    n = _affordable(noise, rule, budget_s)
    if noise.error is None or n < LEAST_TURNS:
        return None
    return math.hypot(noise.error / math.sqrt(n), rule.process_sd) / math.sqrt(rule.n_pairs)


def _affordable(noise: Noise, rule: StoppingRule, budget_s: float) -> int:
    """Return the pairs of turns of each process pair."""
    return min(TURN_SIZES[-1], math.floor(budget_s / rule.n_pairs / noise.pair_s))


def _parts(times: Sequence[float]) -> list[Sequence[float]]:
    """Quarters of the times, in their order; fewer where there are fewer times."""
    n = min(_PARTS, len(times))
    return [times[len(times) * i // n : len(times) * (i + 1) // n] for i in range(n)]
