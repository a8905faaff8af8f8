"""
Change points of a history: the places where the level of its values changed.

A series is split where its two sides differ most, and both sides are split again while a split is
significant. Else the newest values are compared with those before them, since a look at a few
places finds a smaller change than a look at all of them. Else a stretch of the series may be at
another level than what lies around it, as between a regression and its repair.

Sources: splits and test, Matteson and James, E-divisive, JASA 109 (2014): 334–345, used for
histories of benchmarks by Fleming et al., Hunter, ICPE 2023 (now Apache Otava); stretches, Olshen
et al., Biostatistics 5 (2004): 557–572. E-divisive compares by the energy distance. Here it is the
difference of means of the logarithms, clipped for outliers (Huber, Annals of Mathematical
Statistics 35 (1964): 73–101). It finds more of the small changes in normal noise.

A permutation test decides: if nothing changed, every order of the values is as likely, whatever
their distribution. So the share of random orders in which a segment differs as much is the chance
of the difference. Orders are drawn only while they can change the decision. The test assumes that
no value depends on the ones before.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pytest_tfperf.stats.prediction_interval import LEAST_RUN_SD

Ints = npt.NDArray[np.int64]
MOST_ORDERS = 10_000
"""Orders of a test, with that of the values, if `MOST_NUMBERS` allows them."""
MOST_NUMBERS = 5_000_000
"""Values of all orders of a test, which bounds its time; the level is exact for any number."""
_SEED = 0
_FEWEST_AT_A_TIME, _MOST_AT_A_TIME, _NUMBERS_AT_A_TIME = 64, 1024, 250_000
_MOST_ROUNDS, _MOST_MOVED = 10, 50  # values, in a round
_FAR = 2.5 * 1.4826  # 2.5 standard deviations of normal values, by their median distance
_ROUNDING = 1e-9
Floats = npt.NDArray[np.float64]
LEVEL, NEWEST_LEVEL, STRETCH_LEVEL = 0.002, 0.0045, 0.0005
"""Significance levels of a split, of one near the end, and of a stretch: together less than 1 %."""
FEWEST = 11
"""
Fewest values in which a split can be significant.

The least p-value of n values is 2 ÷ the number of choices of one half of them.
"""
FEWEST_WITH_STRETCH = 14
"""Fewest values in which a stretch can be significant."""
FEWEST_AT_A_LEVEL = 3
"""Fewest values of a level; one or two may be outliers."""
MOST_NEWEST = 10
"""Most values behind a split near the end."""
MOST_BEFORE_NEWEST = 200
"""Most values before it; more of them would hardly find more, since the newest are so few."""
MOST_VALUES = 2_000
"""Most values that are looked at, the newest ones, which bounds the time."""
LEAST_CHANGE = LEAST_RUN_SD
"""Smallest change of a level, as a share; runs of the same code differ by that everywhere."""
_MOST_WITH_STRETCH = 300  # values; stretches are as many as their square
_CLIP, _CLIP_STRETCH = 2.0, 5.0  # robust standard deviations from the median
_MAD = 1.4826  # standard deviation of normal values ÷ their median absolute deviation


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
    Return the first sides of splits of n values: `fewest` or more, at most `most_after` behind
    them.
    """
    least = fewest if most_after is None else max(fewest, n - most_after)
    end = np.arange(least, n - fewest + 1)
    return Segments(first=np.zeros_like(end), end=end)


@lru_cache(maxsize=16)
def stretches(n: int, fewest: int) -> Segments:
    """Return the segments with at least the fewest values before, in and behind them."""
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


def settled(values: Floats, places: Sequence[int], fewest: int) -> list[int]:
    """
    Move each edge, the first value behind it, to the best place between its neighbours, repeatedly.

    There the losses from the medians of both sides are least. Values that are clipped around one
    median, which serve the test, may leave a large change one run off.
    """
    edges = [0, *places, len(values)]
    for _ in range(_MOST_ROUNDS):
        before = list(edges)
        for n in range(1, len(edges) - 1):
            edges[n] = _best_place(values, edges[n - 1], edges[n], edges[n + 1], fewest)
        if edges == before:
            break
    return edges[1:-1]


def _best_place(values: Floats, first: int, place: int, end: int, fewest: int) -> int:
    """Return the best place of one edge for the medians that its sides have now."""
    left, right = values[first:place], values[place:end]
    level, next_level = float(np.median(left)), float(np.median(right))
    distances = np.abs(np.concatenate([left - level, right - next_level]))
    far = _FAR * float(np.median(distances))
    low, high = max(first + fewest, place - _MOST_MOVED), min(end - fewest, place + _MOST_MOVED)
    moved = values[low:high]
    more = np.concatenate(
        [[0.0], np.cumsum(_losses(moved - level, far) - _losses(moved - next_level, far))]
    )
    # values that are the same make places as good, but for rounding
    good = more <= more.min() + _ROUNDING * np.abs(more).max()
    return place if good[place - low] else low + int(np.argmax(good))


def _losses(residuals: Floats, far: float) -> Floats:
    """Return Huber's loss (Annals of Mathematical Statistics 35 (1964): 73–101)."""
    distances = np.abs(residuals)
    if not far:
        return distances
    near = np.minimum(distances, far)
    losses: Floats = near * (distances - near / 2)
    return losses


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """A change of the level of a series."""

    index: int
    """Place of the first value at the new level, counted from 0."""
    before: float
    """Median of the values since the change point before it."""
    after: float
    """Median of the values up to the next one."""
    p: float
    """Probability of a difference as large as this one in values of one level, or a bound on it."""

    @property
    def ratio(self) -> float:
        """The level after the change ÷ the one before."""
        return self.after / self.before


def change_points(values: Sequence[float]) -> tuple[ChangePoint, ...]:
    """
    Return the changes of level, in order; empty if none is significant, or under `FEWEST` values.

    The same values, positive and the latest last, always have the same change points. Only the
    newest `MOST_VALUES` have any.
    """
    if not all(0 < value < math.inf for value in values):
        raise ValueError(f"finite values above zero have change points, not {values}")
    if (left_out := len(values) - MOST_VALUES) > 0:
        found_later = change_points(values[left_out:])
        return tuple(replace(one, index=left_out + one.index) for one in found_later)
    logs = np.log(np.asarray(values, dtype=np.float64))
    found: dict[int, float] = {}
    parts = [(0, len(logs))]
    while parts:
        first, end = parts.pop()
        changes, p = _changes(logs[first:end], is_last=end == len(logs))
        found |= {first + place: p for place in changes}
        edges = [first, *(first + place for place in changes), end]
        parts += itertools.pairwise(edges) if changes else ()
    places, p_values = sorted(found), [found[place] for place in sorted(found)]
    edges = settled(logs, places, FEWEST_AT_A_LEVEL)
    return _that_matter(np.asarray(values), dict(zip(edges, p_values, strict=True)))


def _changes(values: Floats, *, is_last: bool) -> tuple[tuple[int, ...], float]:
    """Return the places of the best split or else stretch that is significant, and its p-value."""
    n = len(values)
    near_end = is_last and n > MOST_NEWEST + FEWEST_AT_A_LEVEL  # else any split is near the end
    found = []
    if n >= FEWEST:
        level = LEVEL if near_end else LEVEL + NEWEST_LEVEL
        found += _split(values, splits(n, FEWEST_AT_A_LEVEL), level)
    if near_end:
        newest = values[-MOST_BEFORE_NEWEST - MOST_NEWEST :]
        segments = splits(len(newest), FEWEST_AT_A_LEVEL, MOST_NEWEST)
        left_out = n - len(newest)
        found += [(left_out + at, p) for at, p in _split(newest, segments, NEWEST_LEVEL)]
    if found:
        place, p = min(found, key=lambda one: one[1])  # the first, if both are as significant
        return (place,), p
    if FEWEST_WITH_STRETCH <= n <= _MOST_WITH_STRETCH:
        segments = stretches(n, FEWEST_AT_A_LEVEL)
        best, p = best_segment(clipped(values, _CLIP_STRETCH), segments, STRETCH_LEVEL)
        if p <= STRETCH_LEVEL:
            return (int(segments.first[best]), int(segments.end[best])), p
    return (), 1.0


def _split(values: Floats, segments: Segments, level: float) -> list[tuple[int, float]]:
    """Return place and p-value of the best split if it is significant."""
    best, p = best_segment(clipped(values, _CLIP), segments, level)
    return [(int(segments.end[best]), p)] if p <= level else []


def clipped(values: Floats, far: float) -> Floats:
    """Move values that are more than `far` standard deviations from the median to there."""
    middle = np.median(values)
    reach = far * _MAD * float(np.median(np.abs(values - middle)))
    # half of the values or more are the same: then there is no measure of what is far
    return np.clip(values, middle - reach, middle + reach) if reach else values


def _that_matter(values: Floats, found: Mapping[int, float]) -> tuple[ChangePoint, ...]:
    """Return the change points between levels, without those that change it too little."""
    places, medians = sorted(found), dict[tuple[int, int], float]()
    while True:
        parts = [part for part in itertools.pairwise([0, *places, len(values)]) if part[1]]
        medians |= {
            part: float(np.median(values[slice(*part)])) for part in parts if part not in medians
        }
        changes = [
            ChangePoint(
                index=right[0], before=medians[left], after=medians[right], p=found[right[0]]
            )
            for left, right in itertools.pairwise(parts)
        ]
        least = min(changes, key=_size, default=None)
        if least is None or _size(least) >= math.log1p(LEAST_CHANGE):
            return tuple(changes)
        places.remove(least.index)


def _size(change: ChangePoint) -> float:
    return abs(math.log(change.ratio))
