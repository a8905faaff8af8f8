"""
Interval algebra on int64 arrays.

A set of half-open intervals is a pair of arrays (starts, ends), each of shape (n,). A *merged* set
is sorted and disjoint.
"""

from __future__ import annotations

import numpy as np

from pytest_tfperf.protobuf import Ints

Spans = tuple[Ints, Ints]

EMPTY: Spans = (np.empty(0, np.int64), np.empty(0, np.int64))


def merge(*sets: Spans) -> Spans:
    """
    Merge the union of sets of intervals; intervals without length are dropped.

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
    """
    Return the part of `begin:end` outside a merged set.

    Args:
        spans: The set.
        begin: Start of the window.
        end: End of the window, excluded.
    """
    start, stop = clip(spans, begin, end)
    return merge((np.r_[begin, stop], np.r_[start, end]))


def clip(spans: Spans, begin: int, end: int) -> Spans:
    """
    Return the parts of intervals in `begin:end`.

    Args:
        spans: The intervals.
        begin: Start of the window.
        end: End of the window, excluded.
    """
    start, stop = np.clip(spans[0], begin, end), np.clip(spans[1], begin, end)
    keep = stop > start
    return start[keep], stop[keep]


def intersect(first: Spans, second: Spans) -> Spans:
    """Return the intersection of two merged sets, merged."""
    if not first[0].size or not second[0].size:
        return EMPTY
    begin, end = min(first[0][0], second[0][0]), max(first[1][-1], second[1][-1])
    outside = merge(complement(first, begin, end), complement(second, begin, end))
    return complement(outside, begin, end)


def subtract(first: Spans, second: Spans) -> Spans:
    """Return the part of one merged set outside another, merged."""
    if not first[0].size:
        return EMPTY
    return intersect(first, complement(second, int(first[0][0]), int(first[1][-1])))


def covered(spans: Spans, starts: Ints, ends: Ints) -> Ints:
    """
    Measure how much of each window a merged set covers.

    Args:
        spans: The set.
        starts: Starts of the windows, shape (n_windows,).
        ends: Ends of the windows, shape (n_windows,).

    Returns:
        The covered lengths, shape (n_windows,).
    """
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
