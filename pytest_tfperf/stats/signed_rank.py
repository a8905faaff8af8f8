"""
Hodges–Lehmann estimate of a ratio of times, with the Wilcoxon signed-rank interval.

One sample is the log ratio of the two times of a pair of turns. If nothing has changed, it is as
likely above 0 as below, however skewed the times are. The method assumes nothing else: no normal
distribution, and a few outliers do no harm.

Source: Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, ch. 3.1–3.3; Hodges and
Lehmann 1963; Lehmann 1963.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from pytest_tfperf.errors import UnknownMetric
from pytest_tfperf.text import plural

__tracebackhide__ = True

Floats = npt.NDArray[np.float64]

POWER = 0.9
"""Chance of finding the minimum detectable change, which an INCONCLUSIVE states."""
_EXACT = 60  # pairs, up to which the null distribution is counted
_ROUNDING = 1e-9  # relative; 1 - 0.9921875 must still be 2 / 2^8


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A ratio and its bounds."""

    ratio: float
    """Estimate of the ratio."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""
    confidence: float
    """Confidence that `n` samples really give, at least the requested one."""
    n: int
    """Number of samples."""


def estimate(log_ratios: Sequence[float]) -> float:
    """Estimate the ratio by the median of the means of all two samples (Hodges–Lehmann)."""
    return math.exp(np.median(_walsh_averages(_samples(log_ratios))))


def ratio_interval(log_ratios: Sequence[float], confidence: float) -> Interval:
    """
    Return the ratio of two times, and the interval that holds it with at least this confidence.

    Samples are independent, one for each randomised pair of turns. Their distribution is discrete,
    so the interval's own confidence is a little higher. Raises UnknownMetric for too few pairs.
    """
    samples, needed = _samples(log_ratios), needed_pairs(confidence)
    n = len(samples)
    if n < needed:
        raise UnknownMetric(
            f"{plural(n, 'pair')} of turns cannot give an interval of {confidence:.4g}: "
            f"that needs {needed}"
        )
    averages = np.sort(_walsh_averages(samples))
    rank, tail = _critical(n, (1 - confidence) / 2)
    low, high = averages[rank - 1], averages[len(averages) - rank]
    return Interval(
        ratio=math.exp(np.median(averages)),
        low=math.exp(low),
        high=math.exp(high),
        confidence=1 - 2 * tail,
        n=n,
    )


def needed_pairs(confidence: float) -> int:
    """
    Return the fewest pairs for an interval of this confidence: 8 for 99 %.

    All n pairs lie on one side with a chance of 2 ÷ 2^n.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence is above 0 and below 1, not {confidence}")
    return max(1, math.ceil(1 - math.log2(1 - confidence) - _ROUNDING))


def _samples(log_ratios: Sequence[float]) -> Floats:
    samples = np.asarray(log_ratios, np.float64)
    if samples.ndim != 1 or not len(samples) or not np.isfinite(samples).all():
        raise ValueError(f"log ratios are one or more finite numbers, not {log_ratios!r:.80}")
    return samples


def _walsh_averages(samples: Floats) -> Floats:
    """Return the means of all pairs of samples and of each alone; shape (n (n + 1) ÷ 2,)."""
    first, second = np.triu_indices(len(samples))
    averages: Floats = (samples[first] + samples[second]) / 2
    return averages


def _critical(n: int, tail: float) -> tuple[int, float]:
    """Return the rank of the Walsh averages that bound the interval, from either end."""
    if n > _EXACT:
        # the rank sum is about normal; 0.5 corrects for being discrete (large-sample approximation)
        law = NormalDist(n * (n + 1) / 4, math.sqrt(n * (n + 1) * (2 * n + 1) / 24))
        rank = max(1, math.floor(law.inv_cdf(tail) + 0.5))
        return rank, law.cdf(rank - 0.5)
    chances = _rank_sum_distribution(n)
    rank = max(1, int(np.searchsorted(chances, tail * (1 + _ROUNDING), side="right")))
    return rank, float(chances[rank - 1])


@functools.cache
def _rank_sum_distribution(n: int) -> Floats:
    """P(T ≤ t) for t from 0; T is the sum of ranks 1 to n, each with a chance of one half."""
    chances = np.ones(1)
    for rank in range(1, n + 1):
        chances = (np.pad(chances, (0, rank)) + np.pad(chances, (rank, 0))) / 2
    return np.cumsum(chances)
