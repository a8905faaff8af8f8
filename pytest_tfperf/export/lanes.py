"""Division of overlapping events into lanes within which all events nest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.nesting import parents


def lanes_of(events: Events) -> Iterator[Events]:
    """Divide the events of a line into lanes, each sorted by start and then by length."""
    if not len(events):
        return
    events = Events(events.plane, events.rows[np.lexsort((-events.end, events.start))])
    if _all_nest(events):
        yield events
        return
    places = list(range(len(events)))
    for lane in nested_lanes(events.start.tolist(), events.end.tolist(), places):
        yield Events(events.plane, events.rows[lane])


def nested_lanes(
    begins: Sequence[int], ends: Sequence[int], places: list[int]
) -> Iterator[list[int]]:
    """
    Divide slices into lanes.

    Args:
        begins: Begin of each slice.
        ends: End of each slice.
        places: Indices of the slices, sorted by begin, the longest first.

    Returns:
        Indices of the slices of each lane, in the same order.
    """
    while places:
        kept: list[int] = []
        rest: list[int] = []
        open_ends: list[int] = []
        for place in places:
            while open_ends and open_ends[-1] <= begins[place] and open_ends[-1] < ends[place]:
                open_ends.pop()
            if open_ends and open_ends[-1] < ends[place]:
                rest.append(place)
            else:
                kept.append(place)
                open_ends.append(ends[place])
        yield kept
        places = rest


def _all_nest(events: Events) -> bool:
    """Return whether no event overlaps the next one with the same parent."""
    up = parents(events)
    order = np.argsort(up, kind="stable")
    start, end = events.start[order], events.end[order]
    return not ((np.diff(up[order]) == 0) & (start[1:] < end[:-1])).any()
