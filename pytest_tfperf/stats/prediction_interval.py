"""
Whether one new run is slower than those recorded: the prediction interval of one further observation.

The replicate is the run, that is the process: steps of one process are alike, and two processes of the same code are not. Step
times of runs are taken as log-normal, which keeps a ratio above 0 and makes the noise a share of the time, as it is measured.
Hahn and Meeker, Statistical Intervals, ch. 4: mean of n ± t × s × √(1 + 1/n), with n − 1 degrees of freedom.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_tfperf.results import Verdict
from pytest_tfperf.stats.signed_rank import POWER, Interval

RUNS_TO_DECIDE = 5
"""Runs below which the spread between them is not known well enough to decide anything but a doubled time."""
LEAST_RUN_SD = 0.005
"""
Standard deviation of the log time between runs that is assumed at least, since few runs may agree by chance.

The quietest that is on record is about that: bare-metal runners 0.56 % (CodSpeed, 2025), a 45 ms step on a pinned core 0.5 %.
"""
LEAST_SECONDS = 20e-6
"""A step is never slower by less than this: about what waking a thread costs, so a matter of the scheduler and not of the code."""
OUTRIGHT = 2.0
"""A time beyond this many times those recorded is a regression, however few they are."""

_TAIL = (
    0.005 / 2
)  # one side of one of the two comparisons (the latest runs, the anchor), so that both together err in 0.5 %
# of the median of n normal observations in units of theirs, by numeric integration as the tests repeat it; more than five count as five
_VARIANCE_OF_MEDIAN = {1: 1.0, 2: 0.5, 3: 0.44867, 4: 0.29825, 5: 0.28683}


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Step times in seconds of the runs that are recorded, and the middle one of the first `n_anchor`, which stays what it was."""

    runs: tuple[float, ...]
    anchor: float | None = None
    n_anchor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryComparison:
    """
    How one new run stands to those recorded: `level` is their typical time, `ratio` the new one's to it.

    `recent` and `anchor` bound the ratio to the latest runs and to the anchor; None under five runs, where nothing is decided but
    a doubled time. `drift` says that it is a regression by the anchor alone. `tolerance` was raised from `raised_from` where that
    was less than 20 µs. `smallest` is the slow-down that this run and a second one both find, in 90 % of cases.
    """

    verdict: Verdict
    typical_s: float
    ratio: float
    n: int
    tolerance: float
    requested_tolerance: float
    recent: Interval | None = None
    anchor: Interval | None = None
    drift: bool = False
    run_sd: float | None = None
    minimum_detectable_change: float | None = None


def compare_to_history(seconds: float, history: History, tolerance: float) -> HistoryComparison:
    """
    Return the verdict on one new run's step time.

    Raises:
        ValueError: If nothing is recorded, or a time is not above zero.
    """
    if not history.runs or min((seconds, *history.runs)) <= 0:
        raise ValueError(
            f"a step time above zero is held against one or more such, not {seconds} against {history.runs}"
        )
    if len(history.runs) < RUNS_TO_DECIDE:
        return _collecting(seconds, history, tolerance)
    typical_s, run_sd, n = _typical_s(history.runs), _run_sd(history.runs), len(history.runs)
    held = max(tolerance, LEAST_SECONDS / typical_s)
    recent = _interval(seconds / typical_s, 1 + 1 / n, run_sd, n)
    anchor = _against_anchor([seconds], history)
    both = [interval for interval in (recent, anchor) if interval is not None]
    slower, outright = (
        any(interval.low > 1 + held for interval in both),
        seconds > max(OUTRIGHT, 1 + held) * max(history.runs),
    )
    if slower or outright:
        verdict = Verdict.REGRESSION
    elif any(interval.high >= 1 + held for interval in both):
        verdict = Verdict.INCONCLUSIVE
    else:
        verdict = Verdict.IMPROVED if recent.high < 1 else Verdict.PASS
    return HistoryComparison(
        verdict=verdict,
        typical_s=typical_s,
        ratio=recent.ratio,
        n=n,
        tolerance=held,
        requested_tolerance=tolerance,
        recent=recent,
        anchor=anchor,
        drift=verdict is Verdict.REGRESSION and recent.high < 1 + held,
        run_sd=run_sd,
        minimum_detectable_change=_minimum_detectable_change(run_sd, n, held),
    )


def is_another_level(recorded: Sequence[float], history: History, tolerance: float) -> bool:
    """
    Whether runs that are recorded now belong to another typical_s than those recorded before, faster or slower.

    They do where their median is outside the prediction interval of the latest runs, and where drift has taken it further from
    the anchor than is tolerated. A history of fewer than five runs goes on up to twice or half its median.
    """
    now, before = statistics.median(recorded), _typical_s(history.runs)
    if len(history.runs) < RUNS_TO_DECIDE:
        return not 1 / OUTRIGHT <= now / before <= OUTRIGHT
    run_sd, n = _run_sd(history.runs), len(history.runs)
    recent = _interval(now / before, _of_median(len(recorded)) + 1 / n, run_sd, n)
    anchor = _against_anchor(recorded, history)
    bound = 1 + max(tolerance, LEAST_SECONDS / before)
    drifted = anchor is not None and (anchor.low > bound or anchor.high < 1 / bound)
    return drifted or (abs(now - before) >= LEAST_SECONDS and not recent.low <= 1 <= recent.high)


@functools.cache
def t_quantile(probability: float, freedom: int) -> float:
    """
    Quantile, for a probability from one half on, of Student's t with whole degrees of freedom, by bisection of its distribution.

    The distribution is a finite sum there: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
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


def _collecting(seconds: float, history: History, tolerance: float) -> HistoryComparison:
    typical_s = _typical_s(history.runs)
    held = max(tolerance, LEAST_SECONDS / typical_s)
    return HistoryComparison(
        verdict=Verdict.REGRESSION
        if seconds > max(OUTRIGHT, 1 + held) * typical_s
        else Verdict.INCONCLUSIVE,
        typical_s=typical_s,
        ratio=seconds / typical_s,
        n=len(history.runs),
        tolerance=held,
        requested_tolerance=tolerance,
    )


def _typical_s(runs: Sequence[float]) -> float:
    """Return the typical time of runs: the middle one of a few, in which one may be far off, else e to the mean of the logarithms."""
    return (
        statistics.median(runs) if len(runs) < RUNS_TO_DECIDE else statistics.geometric_mean(runs)
    )


def _run_sd(runs: Sequence[float]) -> float:
    """Standard deviation of the log time between runs."""
    return max(LEAST_RUN_SD, statistics.stdev(map(math.log, runs)))


def _run_sd_about_line(runs: Sequence[float]) -> float:
    """Return the same about a straight line through the runs: drift, which widens the other, is no part of it. Of n runs it has n − 2 degrees."""
    logs, places = [math.log(run) for run in runs], range(len(runs))
    slope, start = statistics.linear_regression(places, logs)
    squares = math.fsum(
        (value - start - slope * place) ** 2 for place, value in zip(places, logs, strict=True)
    )
    return max(LEAST_RUN_SD, math.sqrt(squares / (len(runs) - 2)))


def _against_anchor(recorded: Sequence[float], history: History) -> Interval | None:
    """By the spread that gives the narrower interval: runs that drift are better told by the one, few runs by the other."""
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
    """Return the interval of a ratio whose logarithm has this variance in units of the run_sd: of n runs, about so many fitted parameters."""
    factor = math.exp(t_quantile(1 - _TAIL, n - fitted) * run_sd * math.sqrt(variance))
    return Interval(
        ratio=ratio, low=ratio / factor, high=ratio * factor, confidence=1 - 2 * _TAIL, n=n
    )


def _minimum_detectable_change(run_sd: float, n: int, tolerance: float) -> float:
    """
    Return the slow-down that this run finds and a second process confirms, with 90 % or more: √90 % for each, which resemble each other.

    Of a log ratio d the lower end is above log(1 + tolerance) where (d' − d) ÷ (s √(1 + 1/n)) is above t of the interval − (d −
    log(1 + tolerance)) ÷ (s √(1 + 1/n)); the left side has Student's t distribution. No approximation: it holds over all histories.
    """
    quantiles = t_quantile(1 - _TAIL, n - 1) + t_quantile(math.sqrt(POWER), n - 1)
    return (1 + tolerance) * math.exp(quantiles * run_sd * math.sqrt(1 + 1 / n)) - 1
