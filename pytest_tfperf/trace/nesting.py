"""Which event lies within which, on the lines of a plane."""

from __future__ import annotations

import numpy as np

from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.xspace import Ints


def parents(events: Events) -> Ints:
    """
    For each event the index of the innermost other one of its line that includes it, -1 where none; shape (n,).

    The nearest longer-reaching event to the left, by pointer jumping: a logarithmic number of rounds.
    """
    order = np.lexsort((-events.end, events.start, events.line))
    line, end = events.line[order], events.end[order]
    up = np.arange(-1, len(events) - 1)
    while True:
        short = (up >= 0) & ((line[up] != line) | (end[up] < end))
        if not short.any():
            break
        other_line = short & (line[up] != line)
        up = np.where(other_line, -1, np.where(short, up[up], up))
    result = np.full(len(events), -1)
    result[order] = np.where(up >= 0, order[up], -1)
    return result


def enclosing(outer: Events, inner: Events) -> Ints:
    """For each inner event the index of the innermost outer event of its line that includes it, -1 where none; shape (n_inner,)."""
    if not len(outer) or not len(inner):
        return np.full(len(inner), -1)
    order = np.lexsort((-outer.end, outer.start, outer.line))
    rank = _before(outer.line[order], outer.start[order], inner)
    found = np.where(rank >= 0, order[np.maximum(rank, 0)], -1)
    found[(found >= 0) & (outer.line[found] != inner.line)] = -1
    above = parents(outer)
    while (short := (found >= 0) & (outer.end[found] < inner.end)).any():
        found[short] = above[found[short]]
    return found


def _before(line: Ints, start: Ints, inner: Events) -> Ints:
    """The last place in (line, start) order that is not behind each inner event, -1 where none."""
    lines, first = np.unique(line, return_index=True)
    place = np.full(len(inner), -1)
    for key, begin, end in zip(lines, first, np.r_[first[1:], line.size], strict=True):
        mine = inner.line == key
        at = np.searchsorted(start[begin:end], inner.start[mine], side="right") - 1
        place[mine] = np.where(at >= 0, at + begin, -1)
    return place
