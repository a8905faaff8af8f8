"""
Selections of a plane's events by name, time and stats, and their nesting on the lines of a plane.

Only requested stats are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from pytest_tfperf.protobuf import Ints, Message
from pytest_tfperf.trace.intervals import Spans, distinct_values
from pytest_tfperf.trace.stats import Mask, Stats, key_field
from pytest_tfperf.trace.xspace import Plane, once

_FEW = 32
"""Part of a plane's rows below which sorting them is faster than a look at all rows."""
_AT_ONCE = 1 << 12  # events whose stats are decoded together, as many as fit a processor's cache
_NO_INTS = np.empty(0, np.int64)
_NOTHING = Plane("", (), (), *(_NO_INTS,) * 6, {}, {}, (), Message(b"", "<none>"))


@dataclass(frozen=True, eq=False)
class Events:
    """Some events of one plane."""

    plane: Plane
    rows: Ints
    """Rows of the plane's columns, shape (n,)."""

    @classmethod
    def of(cls, plane: Plane | None) -> Events:
        """Select all events of a plane; none if there is no plane."""
        if plane is None:
            return cls(_NOTHING, np.empty(0, np.int64))
        return cls(plane, _every_row(plane))

    def __len__(self) -> int:
        return int(self.rows.size)

    @cached_property
    def start(self) -> Ints:
        """Starts in picoseconds since the trace's origin, shape (n,), not to write."""
        return self._of_each(self.plane.start_ps)

    @cached_property
    def end(self) -> Ints:
        """Ends in picoseconds, excluded, shape (n,), not to write."""
        end = self.start + self.duration
        end.flags.writeable = False
        return end

    @property
    def duration(self) -> Ints:
        """Durations in picoseconds, shape (n,), not to write."""
        return self._of_each(self.plane.duration_ps)

    @property
    def spans(self) -> Spans:
        """Starts and ends as in `intervals`, not merged."""
        return self.start, self.end

    @cached_property
    def line(self) -> Ints:
        """Line of each event, an index into `plane.lines`, shape (n,), not to write."""
        return self._of_each(self.plane.line_index)

    def _of_each(self, column: Ints) -> Ints:
        """Return the values of a column, not to write; that of all events is the column itself."""
        if self.rows is _every_row(self.plane):
            return column
        values = column[self.rows]
        values.flags.writeable = False
        return values

    @property
    def names(self) -> list[str]:
        """Name of each event."""
        return [self.plane.names[index] for index in self.plane.name_index[self.rows]]

    def where(self, mask: Mask) -> Events:
        """Select the events for which a mask of shape (n,) is true."""
        return Events(self.plane, self.rows[np.flatnonzero(mask)])

    def named(self, accept: Callable[[str], bool]) -> Events:
        """
        Select the events whose name is accepted; `accept` is called once for each distinct name.
        """
        wanted = [index for index, name in enumerate(self.plane.names) if accept(name)]
        if self.rows.size == self.plane.start_ps.size:
            return Events(self.plane, _rows_of_names(self.plane, wanted))
        accepted = np.zeros(len(self.plane.names), bool)
        accepted[wanted] = True
        return self.where(accepted[self.plane.name_index[self.rows]]) if len(self) else self

    def called(self, *names: str) -> Events:
        """Select the events of exactly these names."""
        return self.named(frozenset(names).__contains__)

    def on_line(self, index: int) -> Events:
        """Select the events of one line of the plane."""
        return self.where(self.line == index)

    def on_lines(self, *names: str) -> Events:
        """Select the events on lines of exactly these names."""
        return self.where(
            np.isin(
                self.line,
                [index for index, line in enumerate(self.plane.lines) if line.name in names],
            )
        )

    def sorted(self) -> Events:
        """Sort the events by start."""
        return Events(self.plane, self.rows[np.argsort(self.start, kind="stable")])

    def within(self, begin: int, end: int) -> Events:
        """Select the events that start in `begin:end`."""
        return self.where((self.start >= begin) & (self.start < end))

    @cached_property
    def stats(self) -> Stats:
        """Stats of the events."""
        return Stats.read(self.plane, self.rows)

    def integers(self, stat: str, default: int = 0) -> Ints:
        """
        Return the value of an integer stat for each event, shape (n,).

        Strings of digits count as integers. A uint64 from 2**63 on becomes the int64 with the same
        bits. Values that are not integers of 64 bits become the default.
        """
        if len(self) <= _AT_ONCE:
            return self.stats.integers(stat, default)
        parts = [self.rows[first : first + _AT_ONCE] for first in range(0, len(self), _AT_ONCE)]
        return np.concatenate(
            [Stats.read(self.plane, rows, stat).integers(stat, default) for rows in parts]
        )

    def texts(self, stat: str) -> list[str]:
        """Return the value of a stat for each event as text, empty if it has none."""
        return self.stats.texts(stat)

    def having(self, stat: str) -> Events:
        """
        Select the events that carry a stat, without decoding those whose bytes cannot hold it.
        """
        known = _known_carriers(self.plane)
        if self.rows is _every_row(self.plane) and stat not in known:
            known[stat] = self._carriers(stat)
        if self.rows is _every_row(self.plane):
            return Events(self.plane, known[stat])
        found = known[stat] if stat in known else self._carriers(stat)
        return self.where(np.isin(self.rows, found))

    def _carriers(self, stat: str) -> Ints:
        """Return the rows of the events that carry a stat, sorted."""
        keys = [key for key, name in self.plane.stat_names.items() if name == stat]
        if not keys or not len(self):
            return np.empty(0, np.int64)
        rows = distinct_values(np.concatenate([self.with_bytes(key_field(key)) for key in keys]))
        return rows[Events(self.plane, rows).stats.present(stat)]

    def with_bytes(self, pattern: bytes) -> Ints:
        """Return the rows of the events whose stats contain a pattern of bytes; there are some."""
        rows, begin = self.rows, self._of_each(self.plane.stats_begin)
        if np.any(begin[1:] < begin[:-1]):
            order = np.argsort(begin, kind="stable")
            rows, begin = rows[order], begin[order]
        last = int(self.plane.stats_end[rows[-1]])  # events follow each other
        at = self.plane.message.find(pattern, int(begin[0]), last)
        place = np.searchsorted(begin, at, side="right") - 1
        place, at = place[place >= 0], at[place >= 0]
        return distinct_values(rows[place[at < self.plane.stats_end[rows[place]]]])


@once
def _known_carriers(_: Plane) -> dict[str, Ints]:
    """Make a memory for the rows of a plane that carry a stat, by its name."""
    return {}


def _rows_of_names(plane: Plane, wanted: list[int]) -> Ints:
    """Return the rows of a plane that have one of some names, given by their indices, in order."""
    order, first = _by_name(plane)
    rows = [order[first[index] : first[index + 1]] for index in wanted]
    if len(rows) == 1:
        return rows[0]
    if sum(each.size for each in rows) * _FEW < order.size:
        return np.sort(np.concatenate(rows)) if rows else order[:0]
    accepted = np.zeros(len(plane.names), bool)
    accepted[wanted] = True
    return np.flatnonzero(accepted[plane.name_index])


@once
def _every_row(plane: Plane) -> Ints:
    rows = np.arange(plane.start_ps.size)
    rows.flags.writeable = False
    return rows


@once
def _by_name(plane: Plane) -> tuple[Ints, Ints]:
    """Sort the rows of a plane by name; return them and the begin of each name (n_names + 1,)."""
    keys = plane.name_index
    if len(plane.names) < 1 << 16:
        keys = keys.astype(np.uint16)  # sorted in one pass
    order = np.argsort(keys, kind="stable")
    return order, np.r_[0, np.cumsum(np.bincount(plane.name_index, minlength=len(plane.names)))]


def joined(wanted: Ints, keys: Ints, values: Ints) -> Ints:
    """Return the value of each wanted key; -1 if it is absent. Of equal keys the last counts."""
    if not keys.size:
        return np.full(wanted.size, -1)
    order = np.argsort(keys, kind="stable")
    at = np.searchsorted(keys[order], wanted, side="right") - 1
    hit = (at >= 0) & (keys[order][np.maximum(at, 0)] == wanted)
    return np.where(hit, values[order][np.maximum(at, 0)], -1)


def metadata_texts(plane: Plane, stat: str) -> dict[str, str]:
    """Return the texts of a stat of the plane's event metadata by event name, where present."""
    if not plane.metadata_stats:
        return {}
    texts = metadata_stats(plane).texts(stat)
    return {name: text for name, text in zip(plane.metadata_stats, texts, strict=True) if text}


def metadata_stats(plane: Plane) -> Stats:
    """Return the stats of the plane's event metadata; their owners are `plane.metadata_stats`."""
    each = plane.metadata_stats.values()
    spans = [(owner, *span) for owner, own in enumerate(each) for span in own]
    owner, begin, end = np.array(spans, np.int64).reshape(-1, 3).T
    return Stats.at(plane, len(each), owner, begin, end)


def labels(events: Events, stat: str) -> tuple[Ints, list[str]]:
    """
    Return an index into the distinct texts of a stat for each event, shape (n,), and the texts.

    The first text is the empty one. Each distinct stored value is decoded once: profilers store a
    repeated text as a reference.
    """
    stats, codes = events.stats, np.zeros(len(events), np.int64)
    keys = [key for key, name in events.plane.stat_names.items() if name == stat]
    chosen = np.flatnonzero(np.isin(stats.key, keys))
    places: dict[str, int] = {"": 0}
    for kind in distinct_values(stats.kind[chosen]):
        mine = chosen[stats.kind[chosen] == kind]
        _, first, which = np.unique(stats.value[mine], return_index=True, return_inverse=True)
        texts = Events(events.plane, events.rows[stats.owner[mine[first]]]).texts(stat)
        found = np.array([places.setdefault(text, len(places)) for text in texts], np.int64)
        codes[stats.owner[mine]] = found[which.reshape(-1)]
    return codes, list(places)


def plane_stats(plane: Plane) -> dict[str, float | str | bytes]:
    """Return the stats of a plane itself by name: numbers, texts and bytes."""
    if not plane.stats:
        return {}
    begin, end = np.array(plane.stats, np.int64).T
    stats = Stats.at(plane, begin.size, np.arange(begin.size), begin, end)
    named = [
        (place, plane.stat_names[key])
        for place, key in enumerate(stats.key.tolist())
        if key in plane.stat_names
    ]
    return {name: stats.content(place) for place, name in named}


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
    """Return the last place in (line, start) order that is not behind each inner event, or -1."""
    place = np.full(len(inner), -1)
    for first, behind in _stretches(line):
        mine = np.flatnonzero(inner.line == line[first])
        at = np.searchsorted(start[first:behind], inner.start[mine], side="right") - 1
        place[mine] = np.where(at >= 0, at + first, -1)
    return place
