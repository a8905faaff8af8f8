"""
Permutation test of a change of level: the segment of a series that differs most from the rest.

If nothing changed, every order of the values is as likely, whatever their distribution. So the
share of random orders in which a segment differs as much is the chance of the difference. Orders
are drawn only while they can change the decision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_ORDERS = 10_000
"""Orders of a test, with that of the values, if `MOST_NUMBERS` allows them."""
MOST_NUMBERS = 5_000_000
"""Values of all orders of a test, which bounds its time; the level is exact for any number."""
_SEED = 0
_FEWEST_AT_A_TIME, _MOST_AT_A_TIME, _NUMBERS_AT_A_TIME = 64, 1024, 250_000
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Segments of a series, each of which is compared with the values outside it."""

    first: Ints
    """Place of the first value of each segment."""
    end: Ints
    """Place behind its last value."""
    starts: tuple[tuple[int, int, int], ...] = ()
    """
    A width, the least place of a segment of that width, and the number of such segments.

    Empty for the first sides of splits, whose widths follow one another.
    """


@lru_cache(maxsize=64)
def splits(n: int, fewest: int, most_after: int | None = None) -> Segments:
    """
    Return the first sides of the splits of a series.

    Args:
        n: Number of values.
        fewest: Fewest values of a side.
        most_after: Most values of the second side; any number if None.
    """
    least = fewest if most_after is None else max(fewest, n - most_after)
    end = np.arange(least, n - fewest + 1)
    return Segments(first=np.zeros_like(end), end=end)


@lru_cache(maxsize=16)
def stretches(n: int, fewest: int) -> Segments:
    """
    Return the segments with some values before, in and behind them.

    Args:
        n: Number of values.
        fewest: Fewest values before, in and behind a segment.
    """
    first, end = np.triu_indices(n - 2 * fewest + 1, k=fewest)
    return Segments(
        first=first + fewest,
        end=end + fewest,
        starts=tuple(
            (width, fewest, n - 2 * fewest - width + 1)
            for width in range(fewest, n - 2 * fewest + 1)
        ),
    )


def best_segment(values: Floats, segments: Segments, level: float) -> tuple[int, float]:
    """
    Return which segment differs most from the values outside it, and the p-value of that.

    The p-value is less exact where it is far above the level: then few orders decide (sequential
    Monte Carlo, Besag and Clifford, Biometrika 78 (1991): 301–304).

    Args:
        values: The values.
        segments: The segments.
        level: Significance level.
    """
    values = values - values.mean()
    n, width = len(values), segments.end - segments.first
    sums = np.concatenate([[0.0], np.cumsum(values)])
    scores = (sums[segments.end] - sums[segments.first]) ** 2 * (n / (width * (n - width)))
    best, needed = int(scores.argmax()), float(scores.max()) * (1 - _ROUNDING)
    n_alike = n_orders = 1  # the order of the values is one of all
    most = number_of_orders(n)
    for orders in _orders(values, most - 1):
        n_alike += int(np.count_nonzero(_peaks(orders, segments, needed) >= needed))
        n_orders += len(orders)
        if n_alike > level * most:
            break
    return best, n_alike / n_orders


def number_of_orders(n: int) -> int:
    """Return the number of orders of a series of n values."""
    return min(MOST_NUMBERS // n, MOST_ORDERS)


def _peaks(series: Floats, segments: Segments, needed: float) -> Floats:
    """Return the largest sum of squares between a segment and the values outside it."""
    n = series.shape[1]
    sums = np.zeros((len(series), n + 1))
    np.cumsum(series, axis=1, out=sums[:, 1:])
    if not segments.starts:
        width = segments.end
        between = sums[:, width[0] : width[-1] + 1]
        np.square(between, out=between)
        between *= n / (width * (n - width))
        peaks: Floats = between.max(axis=1)
        return peaks
    return _peaks_of_stretches(sums, segments.starts, needed)


def _peaks_of_stretches(
    sums: Floats, starts: tuple[tuple[int, int, int], ...], needed: float
) -> Floats:
    """Return the largest sum of squares, of the widths that may have the needed one."""
    n = sums.shape[1] - 1
    peaks = np.zeros(len(sums))
    reach = np.ptp(sums, axis=1)  # no sum of a segment is larger
    for width, least, number in starts:
        weight = n / (width * (n - width))
        if (reach * reach * weight < needed).all():
            continue
        of_width = sums[:, least + width : least + width + number] - sums[:, least : least + number]
        largest = np.maximum(of_width.max(axis=1), -of_width.min(axis=1))
        np.maximum(peaks, largest * largest * weight, out=peaks)
    return peaks


def _orders(values: Floats, number: int) -> Iterator[Floats]:
    """Yield random orders of the values, always the same ones, a few at first."""
    random = np.random.default_rng(_SEED)
    most = min(max(_NUMBERS_AT_A_TIME // len(values), 1), _MOST_AT_A_TIME)
    rows = min(_FEWEST_AT_A_TIME, most)
    while number:
        rows = min(rows, number)
        yield random.permuted(np.broadcast_to(values, (rows, len(values))), axis=1)
        number -= rows
        rows = min(2 * rows, most)
