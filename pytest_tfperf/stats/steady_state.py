"""
Change point and trend tests: the block from which a series of times is steady, if it ever is.

Both tests use ranks, so that a single interrupted block decides nothing. Both allow for correlation
of neighbouring blocks, as on a machine with other load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

FEWEST = 8  # blocks; fewer show no change point at the level below
_GROUPS = 50  # at most; a longer series is averaged in groups, as batches in MSER-5 (White 1997)
_LEVEL = 0.05  # significance level of the change point, shared by the points where it may be
_TREND_LEVEL = 0.01
_MATTERS = 0.05  # of the median, over the whole series: a smaller trend moves it by less than 2.5 %


@dataclass(frozen=True, slots=True)
class Trend:
    """A trend in block times."""

    per_block: float
    """Change from one block to the next ÷ the median."""
    in_all: float
    """Change over the whole series ÷ the median."""


def slow_start(times: Sequence[float]) -> int:
    """
    Count the first blocks that are slower than those that follow; 0 where that may be chance.

    At most half of the blocks count. The change point is where the rank sum of the first blocks
    (Mann and Whitney 1947) is the most standard deviations above its expectation (Hawkins and Deng
    2010, Journal of Quality Technology 42(2): 165–173). The points share a level of 5 %. The
    variance is that of a series with the lag-1 correlation of the blocks behind the point.

    Ranks do not tell how much slower blocks are, so three blocks or more count besides if each
    takes more than twice as long as every one behind them, of which there are eight or more.
    """
    groups, size = _grouped(times)
    n, most = len(groups), len(groups) // 2
    if len(times) < FEWEST:
        return 0
    slowest_behind = np.maximum.accumulate(groups[::-1])[::-1][1:]
    apart = (np.minimum.accumulate(groups)[:-1] > 2 * slowest_behind)[: n - FEWEST]
    if apart[2:].any():
        return int(np.flatnonzero(apart)[-1] + 1) * size
    first = np.arange(1, most + 1)
    above = np.cumsum(_ranks(groups))[:most] - first * (n + 1) / 2
    scores = above / np.sqrt(first * (n - first) * (n + 1) / 12)
    best = int(scores.argmax())
    needed = NormalDist().inv_cdf(1 - _LEVEL / most) * math.sqrt(_inflation(groups[best + 1 :]))
    return (best + 1) * size if scores[best] >= needed else 0


def find_trend(times: Sequence[float]) -> Trend | None:
    """
    Return the trend of a series that is significant, and 5 % or more in all.

    Kendall's test of a trend (Mann 1945) at 1 %. Its variance is that of a series with the lag-1
    correlation around the trend (Yue and Wang 2004, Water Resources Management 18: 201–218). The
    slope is the median of the slopes of all pairs (Sen 1968).
    """
    groups, size = _grouped(times)
    n = len(groups)
    if len(times) < FEWEST or not (middle := float(np.median(groups))):
        return None
    before, after = np.triu_indices(n, k=1)
    rises = (groups[after] - groups[before]) / middle
    slope = float(np.median(rises / (after - before)))
    # beyond nine digits is the rounding of floats
    around = (groups / middle - slope * np.arange(n)).round(9)
    variance = n * (n - 1) * (2 * n + 5) / 18 * _inflation(around)
    needed = NormalDist().inv_cdf(1 - _TREND_LEVEL / 2) * math.sqrt(variance)
    in_all = slope * (n - 1)
    if abs(np.sign(rises).sum()) < needed or abs(in_all) < _MATTERS:
        return None
    return Trend(per_block=slope / size, in_all=in_all)


def _grouped(times: Sequence[float]) -> tuple[Floats, int]:
    """Group consecutive blocks; those left over at the end are dropped."""
    size = math.ceil(len(times) / _GROUPS) or 1
    n = len(times) // size
    return np.asarray(times[: n * size], dtype=np.float64).reshape(n, size).mean(axis=1), size


def _ranks(values: Floats) -> Floats:
    """Ranks from 1; equal values share the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[which], dtype=np.float64)


def _inflation(values: Floats) -> float:
    """
    Return the variance of a sum over a series ÷ that of independent values: (1 + r)/(1 − r).

    r is the lag-1 correlation of the ranks. It is estimated too low in a short series, by about 1/n
    where there is none; that is added. A negative r counts as 0.
    """
    centred = _ranks(values) - (len(values) + 1) / 2
    total = float(centred @ centred)
    correlation = float(centred[1:] @ centred[:-1]) / total + 1 / len(values) if total else 0.0
    correlation = min(max(correlation, 0.0), 0.9)
    return (1 + correlation) / (1 - correlation)
