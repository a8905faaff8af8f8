"""
A bound on the share of the orders of some values in which a segment has a large sum.

For any s and t above zero, the product of 1 + s·exp(t·x) over the values x is the sum of
s^|A|·exp(t·sum of A) over all subsets A. Each subset of k values whose sum is c or more adds at
least s^k·exp(t·c). So there are at most product ÷ (s^k·exp(t·c)) of them, of all n choose k. This
is the bound of Chernoff (Annals of Mathematical Statistics 23 (1952): 493–507) for draws without
replacement.

Sums of the first 1, 2, 3 … values are bounded together. The sum of k of them ÷ (n − k) is a
martingale (Serfling, Annals of Statistics 2 (1974): 39–48), and Doob's inequality bounds its
maximum like its last value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_N_BINS = 48
_STEPS = 6  # of Newton, to a good s; any s gives a bound
_SCALES = (0.7, 1.0, 1.5)  # of t: times what is best for normal values
_MOST_IN_A_BIN = 50.0  # t times the width of a bin, far from an overflow
_LEAST_DISTANCE = 5.0  # standard deviations, below which the bound is far above one in a million
_TOGETHER = 16  # of 17 k to k are bounded together


def most_alike_splits(values: Floats, needed: float, least: int, most: int) -> float:
    """
    Return a bound on the share of orders with a split whose sides differ as much as needed.

    Args:
        values: Values whose mean is 0.
        needed: Sum of squares between the sides.
        least: Least number of values of the first side.
        most: Most values of the first side.
    """
    n = len(values)
    # the sum of the first side is minus that of the second
    both = [*_blocks(least, min(most, n // 2)), *_blocks(n - most, min(n - least, (n - 1) // 2))]
    low, high = np.array(both, dtype=np.float64).T
    far = (n - high) * np.sqrt(needed * low / (n * (n - low)))
    return _share(values, needed, high, far, np.ones_like(high))


def most_alike_segments(
    values: Floats, needed: float, widths: Sequence[int], numbers: Sequence[int]
) -> float:
    """
    Return a bound on the share of orders with a segment that differs from the rest as needed.

    Args:
        values: Values whose mean is 0.
        needed: Sum of squares between the segment and the values outside it.
        widths: Numbers of values of a segment.
        numbers: Number of segments of each of them.
    """
    n, width = len(values), np.array(widths, dtype=np.float64)
    far = np.sqrt(needed * width * (n - width) / n)
    k = np.minimum(width, n - width)
    return _share(values, needed, k, far, np.array(numbers, dtype=np.float64))


def _blocks(least: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield the ends of ranges that cover all numbers from least to most."""
    while least <= most:
        high = min(least + least // _TOGETHER, most)
        yield least, high
        least = high + 1


def _share(values: Floats, needed: float, k: Floats, far: Floats, number: Floats) -> float:
    """Return the sum of the bounds for sums of k values."""
    variance = float(np.mean(values * values))
    if needed <= _LEAST_DISTANCE**2 * variance:
        return 1.0
    logs = [_log_bound(side, k, far, variance) for side in (values, -values)]
    return float(min(sum((number * np.exp(np.minimum(one, 0.0))).sum() for one in logs), 1.0))


def _log_bound(values: Floats, k: Floats, far: Floats, variance: float) -> Floats:
    """Return logarithms of bounds on the share of choices of k values with a sum that is so far."""
    n, bins = len(values), _binned(values)
    best = far / (variance * k * (1 - k / n))
    tried = [np.minimum(scale * best, _MOST_IN_A_BIN / bins.width) for scale in _SCALES]
    logs: Floats = np.min([_log_product(bins, t, k) - t * far for t in tried], axis=0)
    return logs - _log_choices(n, k)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bins:
    """Values by bins of one width."""

    low: Floats
    """Lower edges."""
    width: float
    share: Floats
    """Place of the mean in the bin, from 0 to 1."""
    number: Floats
    """Number of values."""


def _binned(values: Floats) -> _Bins:
    least, width = float(values.min()), float(np.ptp(values)) / _N_BINS
    place = np.clip(((values - least) / width).astype(np.int64), 0, _N_BINS - 1)
    number = np.bincount(place, minlength=_N_BINS).astype(np.float64)
    total = np.bincount(place, weights=values, minlength=_N_BINS)
    some = number > 0
    low: Floats = least + width * np.arange(_N_BINS, dtype=np.float64)[some]
    share = np.clip((total[some] / number[some] - low) / width, 0.0, 1.0)
    return _Bins(low=low, width=width, share=share, number=number[some])


def _log_product(bins: _Bins, t: Floats, k: Floats) -> Floats:
    """
    Return log(product of 1 + s·exp(t·x)) − k·log(s), or a little more, for a good s.

    In a bin the mean of exp(t·x) is at most that of its chord, and log is concave.
    """
    rise = np.expm1(t * bins.width)
    log_mean = np.outer(t, bins.low) + np.log1p(np.outer(rise, bins.share))
    n = bins.number.sum()
    log_s = np.log(k / (n - k)) - np.logaddexp.reduce(log_mean + np.log(bins.number / n), axis=1)
    for _ in range(_STEPS):
        drawn = (1 + np.tanh((log_s[:, None] + log_mean) / 2)) / 2
        slope = np.maximum((drawn * (1 - drawn)) @ bins.number, 1e-9)
        log_s = log_s - np.clip((drawn @ bins.number - k) / slope, -2.0, 2.0)
    product: Floats = np.logaddexp(0.0, log_s[:, None] + log_mean) @ bins.number
    logs: Floats = product - k * log_s
    return logs


def _log_choices(n: int, k: Floats) -> Floats:
    """Return log(n choose k)."""
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    whole = k.astype(np.int64)
    logs: Floats = log_factorial[n] - log_factorial[whole] - log_factorial[n - whole]
    return logs
