"""
Where a series of block times becomes steady, and whether it ever does.

Both tests go by ranks, so that a single block that something interrupted decides nothing, and both allow for blocks that
resemble their neighbours, as those of a machine with other load do.
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
_GROUPS = 50  # blocks of a longer series are averaged in so many groups at most, as batches are in MSER-5 (White 1997)
_LEVEL = 0.05  # of the change point, shared by the points where it may be
_TREND_LEVEL = 0.01
_MATTERS = 0.05  # of the median, over the whole series: a smaller trend moves it by less than 2.5 %


@dataclass(frozen=True, slots=True)
class Trend:
    """What a block's time differs from that of the block before it, ÷ the median; and over all of the series."""

    per_block: float
    in_all: float


def slow_start(times: Sequence[float]) -> int:
    """
    How many of the first blocks are slower than those that follow, at most half of them; 0 where that may be chance.

    The change point is where the rank sum of the first blocks (Mann and Whitney 1947) is the most standard deviations above
    what chance gives (Hawkins and Deng 2010, Journal of Quality Technology 42(2): 165–173), at a level of 5 % that the points
    share. The variance is that of a series with the lag-1 correlation of the blocks behind the point.
    """
    groups, size = _grouped(times)
    n, most = len(groups), len(groups) // 2
    if len(times) < FEWEST:
        return 0
    first = np.arange(1, most + 1)
    above = np.cumsum(_ranks(groups))[:most] - first * (n + 1) / 2
    scores = above / np.sqrt(first * (n - first) * (n + 1) / 12)
    best = int(scores.argmax())
    needed = NormalDist().inv_cdf(1 - _LEVEL / most) * math.sqrt(_inflation(groups[best + 1 :]))
    return (best + 1) * size if scores[best] >= needed else 0


def find_trend(times: Sequence[float]) -> Trend | None:
    """
    Return the trend of a series that is not steady: one that is no chance, and moves the blocks by 5 % or more in all.

    Kendall's test of a trend (Mann 1945) at 1 %, its variance that of a series with the lag-1 correlation around the trend (Yue and
    Wang 2004, Water Resources Management 18: 201–218); the slope is the median of those of all pairs (Sen 1968).
    """
    groups, size = _grouped(times)
    n = len(groups)
    if len(times) < FEWEST or not (middle := float(np.median(groups))):
        return None
    before, after = np.triu_indices(n, k=1)
    rises = (groups[after] - groups[before]) / middle
    slope = float(np.median(rises / (after - before)))
    around = (groups / middle - slope * np.arange(n)).round(
        9
    )  # beyond that is the rounding of floats
    needed = NormalDist().inv_cdf(1 - _TREND_LEVEL / 2) * math.sqrt(
        n * (n - 1) * (2 * n + 5) / 18 * _inflation(around)
    )
    in_all = slope * (n - 1)
    if abs(np.sign(rises).sum()) < needed or abs(in_all) < _MATTERS:
        return None
    return Trend(per_block=slope / size, in_all=in_all)


def _grouped(times: Sequence[float]) -> tuple[Floats, int]:
    """Means of consecutive blocks, at most 50, and how many blocks are one; those left over at the end are none."""
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
    Return the variance of a sum over a series ÷ that of independent values: (1 + r)/(1 − r) with the lag-1 correlation r of its ranks.

    r is estimated too low in a short series, by about 1/n where there is none; that is added. A negative one counts as 0.
    """
    centred = _ranks(values) - (len(values) + 1) / 2
    total = float(centred @ centred)
    correlation = float(centred[1:] @ centred[:-1]) / total + 1 / len(values) if total else 0.0
    correlation = min(max(correlation, 0.0), 0.9)
    return (1 + correlation) / (1 - correlation)
