"""The nesting of events on the lines of a plane."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.stat_columns import Mask


def parents(events: Events) -> Ints:
    """
    Return the index of the innermost other event of its line that encloses each event, shape (n,).

    It is -1 if there is none. The parent is the nearest longer-reaching event to the left, found by
    pointer jumping. Events that end after all to their left have none. Siblings take a logarithmic
    number of rounds; each level that ends before an event takes one more, for the few events that
    have not found theirs.
    """
    order = _order(events)
    line, end = _in(order, events.line), _in(order, events.end)
    late = np.flatnonzero(_is_reached(line, end))
    up = np.full(len(events), -1)
    up[late] = late - 1
    while (late := late[end[up[late]] < end[late]]).size:
        up[late] = up[up[late]]
        late = late[up[late] >= 0]
    if order is None:
        return up
    result = np.full(len(events), -1)
    result[order] = np.where(up >= 0, order[up], -1)
    return result


def _is_reached(line: Ints, end: Ints) -> Mask:
    """
    Return a mask of the events that end no later than one before them on their line, shape (n,).

    Args:
        line: Lines of the events, sorted.
        end: Their ends.
    """
    is_reached: Mask = np.zeros(line.size, bool)
    for first, behind in _stretches(line):
        own = end[first:behind]
        is_reached[first + 1 : behind] = own[1:] <= np.maximum.accumulate(own)[:-1]
    return is_reached


def enclosing(outer: Events, inner: Events) -> Ints:
    """
    Return the index of the innermost outer event that encloses each inner event of its line.

    It is -1 if there is none; shape (n_inner,).
    """
    if not len(outer) or not len(inner):
        return np.full(len(inner), -1)
    order = _order(outer)
    found = _before(_in(order, outer.line), _in(order, outer.start), inner)
    if order is not None:
        found = np.where(found >= 0, order[found], -1)
    outer_end, inner_end = outer.end, inner.end
    late = np.flatnonzero(found >= 0)
    late = late[outer_end[found[late]] < inner_end[late]]
    above = parents(outer) if late.size else found
    while late.size:
        found[late] = above[found[late]]
        late = late[found[late] >= 0]
        late = late[outer_end[found[late]] < inner_end[late]]
    return found


def self_times(events: Events) -> Ints:
    """
    Return each event's duration in picoseconds without the events directly in it, shape (n,).

    It is at least 0.
    """
    duration, above = events.duration, parents(events)
    rest: Ints = duration.copy()
    inside = np.flatnonzero(above >= 0)
    np.subtract.at(rest, above[inside], duration[inside])
    rest[rest < 0] = 0
    return rest


def _order(events: Events) -> Ints | None:
    """
    Order the events by line, then start, the longer first.

    It is None if they are in this order, as profilers write them.
    """
    line, start, end = events.line, events.start, events.end
    doubtful = np.flatnonzero((start[1:] <= start[:-1]) | (line[1:] < line[:-1]))
    next_line = line[doubtful + 1] > line[doubtful]
    same = (line[doubtful + 1] == line[doubtful]) & (start[doubtful + 1] == start[doubtful])
    if (next_line | (same & (end[doubtful + 1] <= end[doubtful]))).all():
        return None
    return np.lexsort((-end, start, line))


def _in(order: Ints | None, column: Ints) -> Ints:
    """Return a column in an order as `_order` returns it."""
    return column if order is None else column[order]


def _stretches(line: Ints) -> Iterator[tuple[int, int]]:
    """Return the first place of each line, and the place behind its last; lines are sorted."""
    edges = np.flatnonzero(line[1:] != line[:-1]) + 1
    return pairwise([0, *edges.tolist(), line.size])


def _before(line: Ints, start: Ints, inner: Events) -> Ints:
    """
    Return the last place in (line, start) order that is not behind each inner event, or -1.

    Args:
        line: Lines of the outer events, sorted.
        start: Their starts, sorted within lines.
        inner: The inner events.
    """
    place = np.full(len(inner), -1)
    for first, behind in _stretches(line):
        mine = np.flatnonzero(inner.line == line[first])
        at = np.searchsorted(start[first:behind], inner.start[mine], side="right") - 1
        place[mine] = np.where(at >= 0, at + first, -1)
    return place
