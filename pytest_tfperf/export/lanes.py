"""Division of overlapping events into lanes within which all events nest."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence

import numpy as np

from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.nesting import parents


def lanes_of(events: Events) -> Iterator[Events]:
    """Divide the events of a line into lanes, each sorted by start and then by length."""
    if not len(events):
        return
    events = Events(events.plane, events.rows[np.lexsort((-events.end, events.start))])
    if len(events) == 1 or _all_nest(events):
        yield events
        return
    for lane in nested_lanes(events.start.tolist(), events.end.tolist(), range(len(events))):
        yield Events(events.plane, events.rows[lane])


def nested_lanes(
    begins: Sequence[int], ends: Sequence[int], places: Sequence[int]
) -> list[list[int]]:
    """
    Divide slices into lanes: each goes to the first lane in which it nests.

    Of n slices each takes a time of log n, in as many lanes as they may need.

    Args:
        begins: Begin of each slice.
        ends: End of each slice.
        places: Indices of the slices, sorted by begin, the longest first.

    Returns:
        Indices of the slices of each lane, in the same order.
    """
    lanes: list[list[int]] = []
    open_ends: list[list[int]] = []  # of each lane, the innermost last
    closing: list[tuple[int, int]] = []  # all open ends with their lanes, the next one first
    tops = _FirstAtLeast()
    for place in places:
        begin, end = begins[place], ends[place]
        while closing and closing[0][0] <= begin and closing[0][0] < end:
            _, lane = heapq.heappop(closing)
            open_ends[lane].pop()
            tops.put(lane, open_ends[lane][-1] if open_ends[lane] else math.inf)
        lane = tops.first(end)
        if lane == len(lanes):
            lanes.append([])
            open_ends.append([])
        lanes[lane].append(place)
        open_ends[lane].append(end)
        tops.put(lane, end)
        heapq.heappush(closing, (end, lane))
    return lanes


class _FirstAtLeast:
    """
    Numbers at places from 0 on, infinite at first, and the first place with at least some number.

    A binary tree holds the largest number of each half, quarter, and so on, the root at 1.
    """

    def __init__(self) -> None:
        self._n_leaves = 1
        self._largest: list[float] = [math.inf, math.inf]

    def put(self, place: int, number: float) -> None:
        """Change the number at a place."""
        if place >= self._n_leaves:
            self._double()
        largest, node = self._largest, place + self._n_leaves
        largest[node] = number
        while node > 1:
            node //= 2
            largest[node] = max(largest[2 * node], largest[2 * node + 1])

    def first(self, number: float) -> int:
        """Return the first place whose number is at least this one."""
        if self._largest[1] < number:
            return self._n_leaves
        node = 1
        while node < self._n_leaves:
            node *= 2
            node += self._largest[node] < number
        return node - self._n_leaves

    def _double(self) -> None:
        leaves = self._largest[self._n_leaves :] + [math.inf] * self._n_leaves
        self._n_leaves *= 2
        self._largest = [math.inf] * self._n_leaves + leaves
        for node in range(self._n_leaves - 1, 0, -1):
            self._largest[node] = max(self._largest[2 * node], self._largest[2 * node + 1])


def _all_nest(events: Events) -> bool:
    """Return whether no event overlaps the next one with the same parent."""
    up = parents(events)
    order = np.argsort(up, kind="stable")
    start, end = events.start[order], events.end[order]
    return not ((np.diff(up[order]) == 0) & (start[1:] < end[:-1])).any()
