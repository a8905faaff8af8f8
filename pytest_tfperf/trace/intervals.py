"""
Interval algebra on int64 arrays: sets of half-open intervals as a pair of arrays (starts, ends), each of shape (n,).

Everything that is called *merged* is sorted and disjoint.
"""

from __future__ import annotations

import numpy as np

from pytest_tfperf.protobuf import Ints

Spans = tuple[Ints, Ints]

EMPTY: Spans = (np.empty(0, np.int64), np.empty(0, np.int64))


def merge(*sets: Spans) -> Spans:
    """
    The union of sets of intervals, merged; intervals without length are dropped.

    >>> merge((np.array([0, 3, 2]), np.array([2, 5, 4])))
    (array([0]), array([5]))
    """
    start = np.concatenate([spans[0] for spans in sets]) if sets else EMPTY[0]
    end = np.concatenate([spans[1] for spans in sets]) if sets else EMPTY[1]
    keep = end > start
    start, end = start[keep], end[keep]
    if not start.size:
        return EMPTY
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.r_[True, start[1:] > reach[:-1]])
    last = np.r_[first[1:] - 1, start.size - 1]
    return start[first], reach[last]


def complement(spans: Spans, begin: int, end: int) -> Spans:
    """What merged intervals leave free of `begin:end`."""
    start, stop = clip(spans, begin, end)
    return merge((np.r_[begin, stop], np.r_[start, end]))


def clip(spans: Spans, begin: int, end: int) -> Spans:
    """The parts of intervals that lie in `begin:end`."""
    start, stop = np.clip(spans[0], begin, end), np.clip(spans[1], begin, end)
    keep = stop > start
    return start[keep], stop[keep]


def intersect(one: Spans, other: Spans) -> Spans:
    """What two merged sets have in common, merged."""
    if not one[0].size or not other[0].size:
        return EMPTY
    begin, end = min(one[0][0], other[0][0]), max(one[1][-1], other[1][-1])
    outside = merge(complement(one, begin, end), complement(other, begin, end))
    return complement(outside, begin, end)


def subtract(one: Spans, other: Spans) -> Spans:
    """What of the merged set `one` is not in the merged set `other`, merged."""
    if not one[0].size:
        return EMPTY
    return intersect(one, complement(other, int(one[0][0]), int(one[1][-1])))


def covered(spans: Spans, starts: Ints, ends: Ints) -> Ints:
    """How much of each window `starts[i]:ends[i]` a merged set covers, shape (n_windows,)."""
    if not spans[0].size:
        return np.zeros(starts.size, np.int64)
    total: Ints = np.r_[0, np.cumsum(spans[1] - spans[0])]

    def until(times: Ints) -> Ints:
        place = np.searchsorted(spans[0], times, side="right")
        inside = (
            np.minimum(times, np.r_[times.min(initial=0), spans[1]][place])
            - np.r_[0, spans[0]][place]
        )
        return total[np.maximum(place - 1, 0)] + np.where(place > 0, inside, 0)

    return until(ends) - until(starts)
