"""
Prediction interval of one further run: decide whether it is slower than the recorded runs.

The replicate is the run, that is the process. Steps of one process are alike; two processes of the
same code are not. Step times of runs are taken as log-normal. That keeps a ratio above 0 and makes
the noise a share of the time, as measured.

A run beside other work took longer than it would have alone, and its time alone is known by bounds.
So a new run is slower if the least that it may have taken is above what the recorded runs took, and
it passes if what it took is within the least that those may have taken.

Source: Hahn and Meeker, Statistical Intervals, ch. 4: mean of n ± t × s × √(1 + 1/n), with n − 1
degrees of freedom.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_tfperf.results import Verdict
from pytest_tfperf.stats.signed_rank import POWER, Interval

RUNS_TO_DECIDE = 5
"""
Fewest runs for a decision.

Their standard deviation is not known well enough from fewer, which find only a doubled time.
"""
LEAST_RUN_SD = 0.005
"""
Lower limit of the standard deviation of the log time between runs; few runs may agree by chance.

The quietest known are about that: bare-metal runners 0.56 % (CodSpeed, 2025), a 45 ms step on a
pinned core 0.5 %.
"""
LEAST_SECONDS = 20e-6
"""Smallest slow-down of a step: about the cost of waking a thread, a matter of the scheduler."""
OUTRIGHT = 2.0
"""A time beyond this multiple of the recorded ones is a regression, however few they are."""

# one side of one of the two comparisons (the latest runs, the anchor); both together err in 0.5 %
_TAIL = 0.005 / 2
# variance of the median of n normal observations ÷ theirs, by numeric integration, which the tests
# repeat; more than five count as five
_VARIANCE_OF_MEDIAN = {1: 1.0, 2: 0.5, 3: 0.44867, 4: 0.29825, 5: 0.28683}


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Recorded step times, in seconds."""

    runs: tuple[float, ...]
    """Times of the latest runs."""
    least: tuple[float, ...] = ()
    """The least that each may have taken alone; empty if nothing disturbed them."""
    anchor: float | None = None
    """Median time of the first runs, which does not change any more."""
    least_anchor: float | None = None
    """Median of the least that they may have taken; None if nothing disturbed them."""
    n_anchor: int = 1
    """Number of runs behind the anchor."""

    def alone(self) -> History:
        """Return the history with the least times in place of the times."""
        if not self.least and self.least_anchor is None:
            return self
        return History(
            runs=self.least or self.runs,
            anchor=self.anchor if self.least_anchor is None else self.least_anchor,
            n_anchor=self.n_anchor,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryComparison:
    """One new run compared with the recorded runs."""

    verdict: Verdict
    typical_s: float
    """Typical time of the recorded runs."""
    ratio: float
    """The new time ÷ the typical one."""
    n: int
    """Number of recorded runs."""
    tolerance: float
    """Effective tolerance: the requested one, raised to the 20 µs floor where that is more."""
    requested_tolerance: float
    """Slow-down that the user tolerates, as a share."""
    recent: Interval | None = None
    """Interval of the ratio to the latest runs; None under five runs."""
    anchor: Interval | None = None
    """Interval of the ratio to the anchor; None under five runs."""
    drift: bool = False
    """True if it is a regression only by the anchor."""
    run_sd: float | None = None
    """Standard deviation of the log time between runs."""
    minimum_detectable_change: float | None = None
    """The slow-down that this run and a second one both find, in 90 % of cases."""


def compare_to_history(
    seconds: float, history: History, tolerance: float, least: float | None = None
) -> HistoryComparison:
    """
    Compare a new run's step time with the recorded ones; `least` is the least that it may have
    taken alone, None if nothing disturbed it.
    """
    if not history.runs or min((seconds, *history.runs)) <= 0:
        raise ValueError(
            "a step time above zero is compared with one or more such, "
            f"not {seconds} with {history.runs}"
        )
    least = seconds if least is None else least
    if len(history.runs) < RUNS_TO_DECIDE:
        return _collecting(seconds, history, tolerance, least)
    typical_s, run_sd, n = _typical_s(history.runs), _run_sd(history.runs), len(history.runs)
    effective = max(tolerance, LEAST_SECONDS / typical_s)
    recent = _against_runs([seconds], history, [least])
    anchor = _against_anchor([seconds], history, [least])
    both = [interval for interval in (recent, anchor) if interval is not None]
    slower, outright = (
        any(interval.low > 1 + effective for interval in both),
        least > max(OUTRIGHT, 1 + effective) * max(history.runs),
    )
    if slower or outright:
        verdict = Verdict.REGRESSION
    elif any(interval.high >= 1 + effective for interval in both):
        verdict = Verdict.INCONCLUSIVE
    else:
        verdict = Verdict.IMPROVED if recent.high < 1 else Verdict.PASS
    return HistoryComparison(
        verdict=verdict,
        typical_s=typical_s,
        ratio=recent.ratio,
        n=n,
        tolerance=effective,
        requested_tolerance=tolerance,
        recent=recent,
        anchor=anchor,
        drift=verdict is Verdict.REGRESSION and recent.high < 1 + effective,
        run_sd=run_sd,
        minimum_detectable_change=_minimum_detectable_change(
            run_sd, n, effective, typical_s / _typical_s(history.alone().runs) * seconds / least
        ),
    )


def is_another_level(
    recorded: Sequence[float],
    history: History,
    tolerance: float,
    least: Sequence[float] = (),
) -> bool:
    """
    Return whether new runs are at another level than the history, faster or slower.

    They are if their median is outside the prediction interval of the latest runs, or further from
    the anchor than the tolerance. A history of fewer than five runs continues up to twice or half
    its median. `least` is what each may have taken alone; empty if nothing disturbed them.
    """
    least, alone = least or recorded, history.alone()
    now, before = statistics.median(recorded), _typical_s(history.runs)
    if len(history.runs) < RUNS_TO_DECIDE:
        slower = statistics.median(least) / before > OUTRIGHT
        return slower or now / _typical_s(alone.runs) < 1 / OUTRIGHT
    recent = _against_runs(recorded, history, least)
    anchor = _against_anchor(recorded, history, least)
    bound = 1 + max(tolerance, LEAST_SECONDS / before)
    drifted = anchor is not None and (anchor.low > bound or anchor.high < 1 / bound)
    return drifted or (abs(now - before) >= LEAST_SECONDS and not recent.low <= 1 <= recent.high)


@functools.cache
def t_quantile(probability: float, freedom: int) -> float:
    """
    Quantile of Student's t for a probability from one half on, by bisection of its distribution.

    The distribution is a finite sum for whole degrees of freedom. Source: Abramowitz and Stegun,
    Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if _within(middle, freedom) < 2 * probability - 1 else (low, middle)
        )
    return math.sqrt(freedom) * math.tan(low)


def _within(angle: float, freedom: int) -> float:
    """P(|T| ≤ √freedom × tan angle)."""
    odd, cosine = freedom % 2, math.cos(angle)
    term, total = cosine if odd else 1.0, 0.0
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= k / (k + 1) * cosine**2
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


def _collecting(
    seconds: float, history: History, tolerance: float, least: float
) -> HistoryComparison:
    typical_s = _typical_s(history.runs)
    effective = max(tolerance, LEAST_SECONDS / typical_s)
    return HistoryComparison(
        verdict=Verdict.REGRESSION
        if least > max(OUTRIGHT, 1 + effective) * typical_s
        else Verdict.INCONCLUSIVE,
        typical_s=typical_s,
        ratio=seconds / typical_s,
        n=len(history.runs),
        tolerance=effective,
        requested_tolerance=tolerance,
    )


def _typical_s(runs: Sequence[float]) -> float:
    """Return the typical time of runs: the geometric mean, or the median of a few."""
    if len(runs) < RUNS_TO_DECIDE:  # one of them may be far off
        return statistics.median(runs)
    return statistics.geometric_mean(runs)


def _run_sd(runs: Sequence[float]) -> float:
    """Return the standard deviation of the log time between runs."""
    return max(LEAST_RUN_SD, statistics.stdev(map(math.log, runs)))


def _run_sd_about_line(runs: Sequence[float]) -> float:
    """
    Return the standard deviation of the log time about a straight line, which leaves out drift.

    It has n − 2 degrees of freedom.
    """
    logs, places = [math.log(run) for run in runs], range(len(runs))
    slope, start = statistics.linear_regression(places, logs)
    squares = math.fsum(
        (value - start - slope * place) ** 2 for place, value in zip(places, logs, strict=True)
    )
    return max(LEAST_RUN_SD, math.sqrt(squares / (len(runs) - 2)))


def _against_runs(recorded: Sequence[float], history: History, least: Sequence[float]) -> Interval:
    """Compare new runs with the latest ones: the low end by what they took at least."""

    def interval(new: Sequence[float], runs: Sequence[float]) -> Interval:
        n = len(runs)
        variance = _of_median(len(new)) + 1 / n
        ratio = statistics.median(new) / statistics.geometric_mean(runs)
        return _interval(ratio, variance, _run_sd(runs), n)

    found = interval(recorded, history.runs)
    low, high = interval(least, history.runs).low, interval(recorded, history.alone().runs).high
    return replace(found, low=low, high=high)


def _against_anchor(
    recorded: Sequence[float], history: History, least: Sequence[float]
) -> Interval | None:
    """Compare new runs with the anchor: the low end by what they took at least."""
    found = _of_anchor(recorded, history)
    low, high = _of_anchor(least, history), _of_anchor(recorded, history.alone())
    if found is None or low is None or high is None:
        return None
    return replace(found, low=low.low, high=high.high)


def _of_anchor(recorded: Sequence[float], history: History) -> Interval | None:
    """
    Return the interval of new runs ÷ the anchor.

    The standard deviation is the one with the narrower interval: about a line for runs that drift,
    about the mean for few runs.
    """
    if history.anchor is None or history.anchor <= 0:
        return None
    runs, ratio = history.runs, statistics.median(recorded) / history.anchor
    variance, n = _of_median(len(recorded)) + _of_median(history.n_anchor), len(runs)
    found = (
        _interval(ratio, variance, _run_sd(runs), n),
        _interval(ratio, variance, _run_sd_about_line(runs), n, fitted=2),
    )
    return min(found, key=lambda interval: interval.high)


def _of_median(n: int) -> float:
    return _VARIANCE_OF_MEDIAN[min(n, 5)]


def _interval(ratio: float, variance: float, run_sd: float, n: int, fitted: int = 1) -> Interval:
    """Interval of a ratio."""
    factor = math.exp(t_quantile(1 - _TAIL, n - fitted) * run_sd * math.sqrt(variance))
    return Interval(
        ratio=ratio, low=ratio / factor, high=ratio * factor, confidence=1 - 2 * _TAIL, n=n
    )


def _minimum_detectable_change(run_sd: float, n: int, tolerance: float, unknown: float) -> float:
    """
    Return the slow-down that this run finds and a second process confirms, with 90 % or more.

    Each of them finds it with √90 %. For a log ratio d the lower end is above log(1 + tolerance)
    where (d' − d) ÷ (s √(1 + 1/n)) is above t of the interval − (d − log(1 + tolerance)) ÷
    (s √(1 + 1/n)). The left side has Student's t distribution. This is exact over all histories.
    `unknown` is what the bounds of disturbed runs leave open: upper ÷ lower, of both sides.
    """
    quantiles = t_quantile(1 - _TAIL, n - 1) + t_quantile(math.sqrt(POWER), n - 1)
    return unknown * (1 + tolerance) * math.exp(quantiles * run_sd * math.sqrt(1 + 1 / n)) - 1
