"""
Interval algebra on int64 arrays, and their distinct values.

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
    present = [spans for spans in sets if spans[0].size]
    if not present:
        return EMPTY
    start, end = (
        np.concatenate(column) if len(present) > 1 else column[0]
        for column in zip(*present, strict=True)
    )
    start, end = _with_length(start, end)
    if not start.size:
        return EMPTY
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    apart = start[1:] > reach[:-1]
    first = np.r_[0, np.flatnonzero(apart) + 1]
    last = np.r_[first[1:] - 1, start.size - 1]
    return start[first], reach[last]


def _with_length(start: Ints, end: Ints) -> Spans:
    """Return the intervals that have a length, in their order."""
    keep = end > start
    return (start, end) if keep.all() else (start[keep], end[keep])


def complement(spans: Spans, begin: int, end: int) -> Spans:
    """Return the part of `begin:end` outside a merged set, merged."""
    start, stop = clip(spans, begin, end)
    return _with_length(np.r_[begin, stop], np.r_[start, end])


def clip(spans: Spans, begin: int, end: int) -> Spans:
    """Return the parts of intervals in `begin:end`."""
    return _with_length(np.clip(spans[0], begin, end), np.clip(spans[1], begin, end))


def within(spans: Spans, begin: int, end: int) -> Spans:
    """Return the part of a merged set in `begin:end`, merged."""
    first, behind = np.searchsorted(spans[1], begin), np.searchsorted(spans[0], end, side="right")
    return clip((spans[0][first:behind], spans[1][first:behind]), begin, end)


def intersect(first: Spans, second: Spans) -> Spans:
    """Return the intersection of two merged sets, merged."""
    few, many = sorted((first, second), key=lambda spans: spans[0].size)
    if not few[0].size:
        return EMPTY
    begin = np.searchsorted(many[1], few[0], side="right")
    behind = np.searchsorted(many[0], few[1], side="left")
    counts = np.maximum(behind - begin, 0)
    own = np.repeat(np.arange(counts.size), counts)
    other = np.arange(own.size) + np.repeat(begin - (np.cumsum(counts) - counts), counts)
    return np.maximum(few[0][own], many[0][other]), np.minimum(few[1][own], many[1][other])


def subtract(first: Spans, second: Spans) -> Spans:
    """Return the part of one merged set outside another, merged."""
    taken = intersect(first, second)
    if not taken[0].size:
        return first
    return intersect(first, complement(taken, int(first[0][0]), int(first[1][-1])))


def covered(spans: Spans, starts: Ints, ends: Ints) -> Ints:
    """Return the length of each window that a merged set covers, shape (n_windows,)."""
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


def distinct_values(values: Ints) -> Ints:
    """
    Return the sorted distinct values.

    `np.unique` hashes them, which takes longer than sorting where most are in order, as rows are.
    """
    values = np.sort(values)
    return values[np.flatnonzero(np.diff(values, prepend=values[:1] - 1))]


def distinct(values: Ints) -> tuple[Ints, Ints]:
    """
    Return the sorted distinct values, and for each value its index among them.

    Small values, as ids are, go through a table.
    """
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    if not 0 <= low <= high < 1 << 20:
        distinct, index = np.unique(values, return_inverse=True)
        return distinct, index.reshape(-1)
    used = np.zeros(high + 1, bool)
    used[values] = True
    return np.flatnonzero(used), (np.cumsum(used) - 1)[values]
