"""
Change points of a history: the places where the level of its values changed.

A series is split where its two sides differ most, and both sides are split again while a split is
significant. Where none is, a stretch of the series may be at another level than what lies around
it, as between a regression and its repair. A permutation test decides: if nothing changed, every
order of the values is as likely, whatever their distribution. It assumes that no value depends on
the ones before.

Sources: splits and test, Matteson and James, E-divisive, JASA 109 (2014): 334–345, used for
histories of benchmarks by Fleming et al., Hunter, ICPE 2023 (now Apache Otava); stretches, Olshen
et al., Biostatistics 5 (2004): 557–572. E-divisive compares by the energy distance. Here it is the
difference of means of the logarithms, clipped for outliers (Huber, Annals of Mathematical
Statistics 35 (1964): 73–101). It finds more of the small changes in normal noise.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_tfperf.stats.prediction_interval import LEAST_RUN_SD

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEVEL, STRETCH_LEVEL = 0.006, 0.0005
"""Significance levels of a split and of a stretch: together less than 1 %."""
FEWEST = 11
"""
Fewest values in which a split can be significant.

The least p-value of n values is 2 ÷ the number of choices of one half of them.
"""
FEWEST_WITH_STRETCH = 14
"""Fewest values in which a stretch can be significant."""
FEWEST_AT_A_LEVEL = 3
"""Fewest values of a level; one or two may be outliers."""
LEAST_CHANGE = LEAST_RUN_SD
"""Smallest change of a level, as a share; runs of the same code differ by that everywhere."""
_ORDERS, _SEED = 9999, 0
_ORDERS_AT_A_TIME, _NUMBERS_AT_A_TIME = 1000, 1_000_000
_MOST_WITH_STRETCH = 300  # values; stretches are as many as their square
_MOST_ROUNDS, _MOST_MOVED = 10, 50  # runs, in a round
_CLIP, _CLIP_STRETCH = 2.5, 5.0  # robust standard deviations from the median
_MAD = 1.4826  # standard deviation of normal values ÷ their median absolute deviation
_ROUNDING = 1e-9


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
    """Probability of a difference as large as this one in values of one level."""

    @property
    def ratio(self) -> float:
        """The level after the change ÷ the one before."""
        return self.after / self.before


def change_points(values: Sequence[float]) -> tuple[ChangePoint, ...]:
    """
    Return the changes of level, in order; empty if none is significant, or under `FEWEST` values.

    The same values always have the same change points.

    Args:
        values: Positive values, the latest last.

    Raises:
        ValueError: If a value is not finite and above zero.
    """
    if not all(0 < value < math.inf for value in values):
        raise ValueError(f"finite values above zero have change points, not {values}")
    logs = np.log(np.asarray(values, dtype=np.float64))
    found: dict[int, float] = {}
    parts = [(0, len(logs))]
    while parts:
        first, end = parts.pop()
        changes, p = _changes(logs[first:end])
        found |= {first + place: p for place in changes}
        edges = [first, *(first + place for place in changes), end]
        parts += itertools.pairwise(edges) if changes else ()
    places, p_values = sorted(found), [found[place] for place in sorted(found)]
    return _that_matter(values, dict(zip(_settled(logs, places), p_values, strict=True)))


def _changes(values: Floats) -> tuple[tuple[int, ...], float]:
    """Return the places of the best split or else stretch that is significant, and its p-value."""
    n = len(values)
    if n >= FEWEST:
        first, end = _splits(n)
        best, p = best_segment(clipped(values, _CLIP), first, end, LEVEL)
        if p <= LEVEL:
            return (int(end[best]),), p
    if FEWEST_WITH_STRETCH <= n <= _MOST_WITH_STRETCH:
        first, end = _stretches(n)
        best, p = best_segment(clipped(values, _CLIP_STRETCH), first, end, STRETCH_LEVEL)
        if p <= STRETCH_LEVEL:
            return (int(first[best]), int(end[best])), p
    return (), 1.0


def _splits(n: int) -> tuple[Ints, Ints]:
    """Return both ends of the first side of each split."""
    end = np.arange(FEWEST_AT_A_LEVEL, n - FEWEST_AT_A_LEVEL + 1)
    return np.zeros_like(end), end


def _stretches(n: int) -> tuple[Ints, Ints]:
    """Return both ends of each stretch with a level's fewest values before, in and behind it."""
    first, end = np.triu_indices(n - 2 * FEWEST_AT_A_LEVEL + 1, k=FEWEST_AT_A_LEVEL)
    return first + FEWEST_AT_A_LEVEL, end + FEWEST_AT_A_LEVEL


def best_segment(values: Floats, first: Ints, end: Ints, level: float) -> tuple[int, float]:
    """
    Return which segment differs most from the values outside it, and the p-value of that.

    The p-value is less exact where it is far above the level: then few orders decide (sequential
    Monte Carlo, Besag and Clifford, Biometrika 78 (1991): 301–304).

    Args:
        values: The values.
        first: Place of the first value of each segment.
        end: Place behind its last value.
        level: Significance level.
    """
    scores = _scores(values, first, end)
    needed = scores.max() * (1 - _ROUNDING)
    n_alike = n_orders = 1  # the order of the values is one of all
    for orders in _orders(values, len(first)):
        n_alike += int(np.count_nonzero(_scores(orders, first, end).max(axis=1) >= needed))
        n_orders += len(orders)
        if n_alike > level * (1 + _ORDERS):
            break
    return int(scores.argmax()), n_alike / n_orders


def clipped(values: Floats, far: float) -> Floats:
    """Move values that are more than `far` standard deviations from the median to there."""
    middle = np.median(values)
    reach = far * _MAD * float(np.median(np.abs(values - middle)))
    # half of the values or more are the same: then there is no measure of what is far
    return np.clip(values, middle - reach, middle + reach) if reach else values


def _scores(series: Floats, first: Ints, end: Ints) -> Floats:
    """
    Return the sum of squares between each segment and the values outside it.

    Args:
        series: One series, or one in each row.
        first: Place of the first value of each segment.
        end: Place behind its last value.
    """
    n, within = series.shape[-1], end - first
    sums = np.zeros((*series.shape[:-1], n + 1))
    np.cumsum(series - series.mean(axis=-1, keepdims=True), axis=-1, out=sums[..., 1:])
    scores: Floats = (sums[..., end] - sums[..., first]) ** 2 * n / (within * (n - within))
    return scores


def _orders(values: Floats, n_segments: int) -> Iterator[Floats]:
    """Yield random orders of the values, always the same ones, a few at a time."""
    random = np.random.default_rng(_SEED)
    rows = _NUMBERS_AT_A_TIME // max(len(values), n_segments)
    rows = min(max(rows, 1), _ORDERS_AT_A_TIME)
    for done in range(0, _ORDERS, rows):
        shape = (min(rows, _ORDERS - done), len(values))
        yield random.permuted(np.broadcast_to(values, shape), axis=1)


def _settled(values: Floats, places: Sequence[int]) -> list[int]:
    """
    Move each change point to the best place between the two beside it, until none moves.

    There the distances from the medians of both sides are least. Clipped values, which serve the
    test, may leave a large change one run off.
    """
    edges = [0, *places, len(values)]
    for _ in range(_MOST_ROUNDS):
        before = list(edges)
        for n in range(1, len(edges) - 1):
            first, place, end = edges[n - 1 : n + 2]
            possible = range(
                max(first + FEWEST_AT_A_LEVEL, place - _MOST_MOVED),
                min(end - FEWEST_AT_A_LEVEL, place + _MOST_MOVED) + 1,
            )
            distances = [_spread(values[first:one]) + _spread(values[one:end]) for one in possible]
            edges[n] = possible[int(np.argmin(distances))]
        if edges == before:
            break
    return edges[1:-1]


def _spread(values: Floats) -> float:
    return float(np.abs(values - np.median(values)).sum())


def _that_matter(values: Sequence[float], found: Mapping[int, float]) -> tuple[ChangePoint, ...]:
    """Return the change points between levels, without those that change it too little."""
    places = sorted(found)
    while True:
        edges = [0, *places, len(values)]
        levels = [
            statistics.median(values[first:end])
            for first, end in itertools.pairwise(edges)
            if first < end
        ]
        changes = [
            ChangePoint(index=place, before=before, after=after, p=found[place])
            for place, before, after in zip(places, levels, levels[1:], strict=False)
        ]
        least = min(changes, key=_size, default=None)
        if least is None or _size(least) >= math.log1p(LEAST_CHANGE):
            return tuple(changes)
        places.remove(least.index)


def _size(change: ChangePoint) -> float:
    return abs(math.log(change.ratio))
