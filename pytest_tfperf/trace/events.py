"""Selections of a plane's events: by name, by time, with the stats that are asked for decoded, and no others."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pytest_tfperf.protobuf import Ints, Message
from pytest_tfperf.trace.intervals import Spans
from pytest_tfperf.trace.xspace import HOST, Plane, Trace, once

Mask = npt.NDArray[np.bool_]

_AT_ONCE = 1 << 15  # events whose stats are decoded together: what fits a processor's cache

_DIGITS = re.compile(r"-?[0-9]{1,19}").fullmatch


@dataclass(frozen=True, eq=False)
class Events:
    """Some events of one plane; `rows`, of shape (n,), says which."""

    plane: Plane
    rows: Ints

    @classmethod
    def of(cls, plane: Plane | None) -> Events:
        """All events of a plane, none of no plane."""
        if plane is None:
            return cls(_NOTHING, np.empty(0, np.int64))
        return cls(plane, np.arange(plane.start_ps.size))

    def __len__(self) -> int:
        return int(self.rows.size)

    @property
    def start(self) -> Ints:
        """Starts in picoseconds since the trace's origin, shape (n,)."""
        return self.plane.start_ps[self.rows]

    @property
    def end(self) -> Ints:
        """Ends in picoseconds, excluded, shape (n,)."""
        return self.start + self.plane.duration_ps[self.rows]

    @property
    def spans(self) -> Spans:
        """Starts and ends, as `intervals` takes them; not merged."""
        return self.start, self.end

    @property
    def line(self) -> Ints:
        """The line of each event, an index into `plane.lines`, shape (n,)."""
        return self.plane.line_index[self.rows]

    @property
    def names(self) -> list[str]:
        """The name of each event."""
        return [self.plane.names[index] for index in self.plane.name_index[self.rows]]

    def where(self, mask: Mask) -> Events:
        """The events at which the mask, of shape (n,), is true."""
        return Events(self.plane, self.rows[mask])

    def named(self, accept: Callable[[str], bool]) -> Events:
        """The events whose name is accepted; asked once for each distinct name."""
        wanted = [index for index, name in enumerate(self.plane.names) if accept(name)]
        if self.rows.size == self.plane.start_ps.size:
            order, first = _by_name(self.plane)
            rows = [order[first[index] : first[index + 1]] for index in wanted]
            return Events(
                self.plane,
                rows[0] if len(rows) == 1 else np.sort(np.concatenate(rows)) if rows else order[:0],
            )
        accepted = np.zeros(len(self.plane.names), bool)
        accepted[wanted] = True
        return self.where(accepted[self.plane.name_index[self.rows]]) if len(self) else self

    def called(self, *names: str) -> Events:
        """The events of exactly these names."""
        return self.named(frozenset(names).__contains__)

    def on_line(self, index: int) -> Events:
        """The events of one line of the plane."""
        return self.where(self.line == index)

    def on_lines(self, *names: str) -> Events:
        """The events of the plane's lines of exactly these names."""
        return self.where(
            np.isin(
                self.line,
                [index for index, line in enumerate(self.plane.lines) if line.name in names],
            )
        )

    def sorted(self) -> Events:
        """The same events by their start."""
        return Events(self.plane, self.rows[np.argsort(self.start, kind="stable")])

    def within(self, begin: int, end: int) -> Events:
        """The events that start in `begin:end`."""
        return self.where((self.start >= begin) & (self.start < end))

    @cached_property
    def stats(self) -> Stats:
        """The stats of these events."""
        return Stats.read(self.plane, self.rows)

    def integers(self, stat: str, default: int = 0) -> Ints:
        """
        The value of an integer stat of each event, shape (n,); strings of digits count as integers.

        A uint64 from 2**63 on shows as the int64 of the same bits; what is no integer of 64 bits gives the default.
        """
        if len(self) <= _AT_ONCE:
            return self.stats.integers(stat, default)
        parts = [self.rows[first : first + _AT_ONCE] for first in range(0, len(self), _AT_ONCE)]
        return np.concatenate(
            [Stats.read(self.plane, rows, stat).integers(stat, default) for rows in parts]
        )

    def texts(self, stat: str) -> list[str]:
        """The value of a stat of each event as text, empty where an event has none."""
        return self.stats.texts(stat)

    def having(self, stat: str) -> Events:
        """The events that carry a stat; the stats of those whose bytes cannot hold it are not decoded."""
        keys = [key for key, name in self.plane.stat_names.items() if name == stat]
        if not keys or not len(self):
            return self.where(np.zeros(len(self), bool))
        maybe = Events(
            self.plane,
            np.unique(np.concatenate([self._with_bytes(_key_field(key)) for key in keys])),
        )
        found = maybe.rows[maybe.stats.present(stat)]
        return self.where(np.isin(self.rows, found))

    def _with_bytes(self, pattern: bytes) -> Ints:
        """The rows of the events whose stats contain these bytes."""
        rows, begin = self.rows, self.plane.stats_begin[self.rows]
        if np.any(begin[1:] < begin[:-1]):
            order = np.argsort(begin, kind="stable")
            rows, begin = rows[order], begin[order]
        end = self.plane.stats_end[rows]
        at = self.plane.message.find(pattern, int(begin[0]), int(end.max()))
        place = np.searchsorted(begin, at, side="right") - 1
        return rows[np.unique(place[(place >= 0) & (at < end[place])])]


@once
def _by_name(plane: Plane) -> tuple[Ints, Ints]:
    """The rows of a plane by the index of their names, and where in them those of each name begin, shape (n_names + 1,)."""
    keys = (
        plane.name_index.astype(np.uint16) if len(plane.names) < 1 << 16 else plane.name_index
    )  # 16 bits are sorted in one pass
    order = np.argsort(keys, kind="stable")
    return order, np.r_[0, np.cumsum(np.bincount(plane.name_index, minlength=len(plane.names)))]


@dataclass(frozen=True, eq=False)
class Stats:
    """
    Stats in long form: stat j belongs to event `owner[j]`, all of shape (n_stats,).

    `kind` is the field number of XStat's value: double = 2, uint64 = 3, int64 = 4, string = 5, bytes = 6, ref = 7;
    `value` the number (the bits of a double), or the offset of a string or bytes of length `length`.
    """

    plane: Plane
    n_events: int
    owner: Ints
    key: Ints
    kind: Ints
    value: npt.NDArray[np.uint64]
    length: Ints

    @classmethod
    def read(cls, plane: Plane, rows: Ints, stat: str | None = None) -> Stats:
        """The stats of these rows of a plane, or those that may be of one name: one round for each place in the events' lists of stats."""
        message = plane.message
        starts = (
            None
            if stat is None
            else [_key_field(key)[1] for key, name in plane.stat_names.items() if name == stat]
        )
        at, end = plane.stats_begin[rows].copy(), plane.stats_end[rows]
        rounds: list[tuple[Ints, Ints, Ints]] = []
        owner = np.arange(rows.size)
        while (more := at < end).any():
            at, end, owner = at[more], end[more], owner[more]
            plain = message.bytes[at] == 0x22
            for row in np.flatnonzero(~plain):
                rounds.append(_spans_of_one(message, int(at[row]), int(end[row]), int(owner[row])))
            at, end, owner = at[plain], end[plain], owner[plain]
            size, width = message.varints(at + 1)
            begin = at + 1 + width
            at = begin + size.view(
                np.int64
            )  # `xspace` has checked that no stat is longer than its event
            if starts is None:
                rounds.append((owner, begin, at))
            else:  # a stat of another key is told by two bytes, if its key comes first
                may = np.flatnonzero(
                    (message.bytes[begin] != 0x08) | np.isin(message.bytes[begin + 1], starts)
                )
                rounds.append((owner[may], begin[may], at[may]))
        if not rounds:
            return cls(
                plane,
                rows.size,
                *(np.empty(0, np.int64),) * 3,
                np.empty(0, np.uint64),
                np.empty(0, np.int64),
            )
        owner, begin, stop = (np.concatenate(parts) for parts in zip(*rounds, strict=True))
        return cls.at(plane, rows.size, owner, begin, stop)

    @classmethod
    def at(cls, plane: Plane, n_owners: int, owner: Ints, begin: Ints, end: Ints) -> Stats:
        """The stats in these spans of the plane's bytes, whoever they belong to."""
        return cls(plane, n_owners, owner, *_stat_values(plane.message, begin, end))

    def content(self, place: int) -> float | str | bytes:
        """The value of stat `place`, of its own type; of a reference the text."""
        kind, value = int(self.kind[place]), int(self.value[place])
        if kind == 2:
            return float(self.value[place : place + 1].view(np.float64)[0])
        return stat_content(self.plane, kind, value, int(self.length[place]))

    def present(self, stat: str) -> Mask:
        """Which events carry the stat, shape (n_events,)."""
        mask: Mask = np.zeros(self.n_events, bool)
        mask[self.owner[self._of(stat)]] = True
        return mask

    def integers(self, stat: str, default: int) -> Ints:
        """See `Events.integers`."""
        result = np.full(self.n_events, default, np.int64)
        chosen = self._of(stat)
        number = chosen[(self.kind[chosen] == 3) | (self.kind[chosen] == 4)]
        result[self.owner[number]] = self.value[number].view(np.int64)
        for place in chosen[self.kind[chosen] >= 5]:
            text = self._text(int(place))
            if _DIGITS(text) and -(1 << 63) <= int(text) < 1 << 63:
                result[self.owner[place]] = int(text)
        return result

    def texts(self, stat: str) -> list[str]:
        """See `Events.texts`."""
        result = [""] * self.n_events
        for place in self._of(stat).tolist():
            result[self.owner[place]] = self._text(place)
        return result

    def _of(self, stat: str) -> Ints:
        keys = [key for key, name in self.plane.stat_names.items() if name == stat]
        return np.flatnonzero(np.isin(self.key, keys)) if keys else np.empty(0, np.int64)

    def _text(self, place: int) -> str:
        content = self.content(place)
        return content.decode("utf-8", "replace") if isinstance(content, bytes) else str(content)


def stat_content(plane: Plane, kind: int, value: int, length: int) -> int | str | bytes:
    """The value of a stat that is no double, as `Stats` holds it, of its own type; of a reference the text."""
    if kind == 5:
        return plane.message.text(value, value + length)
    if kind == 6:
        return plane.message.slice(value, value + length)
    if kind == 7:
        return plane.stat_names.get(value, "")
    return plane.message.signed(value) if kind == 4 else value


def _key_field(key: int) -> bytes:
    """XStat's metadata_id = 1 of that value, as its bytes begin."""
    groups, rest = [], key % (1 << 64)
    while rest > 0x7F:
        groups.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([0x08, *groups, rest])


def joined(wanted: Ints, keys: Ints, values: Ints) -> Ints:
    """The value that belongs to each wanted key, of equal keys the last, -1 where there is none; shape of `wanted`."""
    if not keys.size:
        return np.full(wanted.size, -1)
    order = np.argsort(keys, kind="stable")
    at = np.searchsorted(keys[order], wanted, side="right") - 1
    hit = (at >= 0) & (keys[order][np.maximum(at, 0)] == wanted)
    return np.where(hit, values[order][np.maximum(at, 0)], -1)


def metadata_texts(plane: Plane, stat: str) -> dict[str, str]:
    """The value of a stat of the plane's event metadata as text, by event name; only where there is one."""
    names = list(plane.metadata_stats)
    spans = [
        (owner, *span) for owner, name in enumerate(names) for span in plane.metadata_stats[name]
    ]
    if not spans:
        return {}
    owner, begin, end = np.array(spans, np.int64).T
    texts = Stats.at(plane, len(names), owner, begin, end).texts(stat)
    return {name: text for name, text in zip(names, texts, strict=True) if text}


def _spans_of_one(message: Message, at: int, end: int, owner: int) -> tuple[Ints, Ints, Ints]:
    """Owner, begins and ends of the stats in an event that holds other fields between them."""
    found = [
        (begin, stop)
        for number, wire, begin, stop in message.fields(at, end, "XEvent")
        if number == 4 and wire == 2
    ]
    begins, ends = np.array(found, np.int64).reshape(-1, 2).T
    return np.full(len(found), owner), begins, ends


def _stat_values(
    message: Message, begin: Ints, end: Ints
) -> tuple[Ints, Ints, npt.NDArray[np.uint64], Ints]:
    """
    key, kind, value and length of the stats in these spans.

    XStat: metadata_id = 1; then one of double_value = 2 (fixed64), uint64_value = 3, int64_value = 4 (varints),
    str_value = 5, bytes_value = 6 (length-delimited), ref_value = 7 (varint). An empty value is the number 0.
    A stat in any other order, or with other fields, is read singly.
    """
    at = begin.copy()
    key, length, number = (
        np.zeros(at.size, np.int64),
        np.zeros(at.size, np.int64),
        np.zeros(at.size, np.uint64),
    )
    keyed = np.flatnonzero((at < end) & (message.bytes[at] == 0x08))
    value, width = message.varints(at[keyed] + 1)
    key[keyed] = value.view(np.int64)
    at[keyed] += 1 + width
    tag = np.where(at < end, message.bytes[at], 0).astype(np.int64)
    double, sized = np.flatnonzero(tag == 0x11), np.flatnonzero(np.isin(tag, (0x2A, 0x32)))
    plain = np.flatnonzero(np.isin(tag, (0x18, 0x20, 0x38)))
    number[double] = message.words[at[double] + 1]
    at[double] += 9
    number[plain], width = message.varints(at[plain] + 1)
    at[plain] += 1 + width
    value, width = message.varints(at[sized] + 1)
    at[sized] += 1 + width
    number[sized], length[sized] = at[sized].view(np.uint64), value.view(np.int64)
    at += length
    kind = np.where(tag == 0, 4, tag >> 3)
    for row in np.flatnonzero(at != end):
        key[row], kind[row], number[row], length[row] = _single_stat(
            message, int(begin[row]), int(end[row])
        )
    return key, kind, number, length


def _single_stat(message: Message, begin: int, end: int) -> tuple[int, int, int, int]:
    """key, kind, value and length of one stat whose fields stand in an unusual order."""
    key, kind, number, length = 0, 4, 0, 0
    for field, wire, value, behind in message.fields(begin, end, "XStat"):
        if (field, wire) == (1, 0):
            key = message.signed(value)
        elif (field, wire) in ((2, 1), (3, 0), (4, 0), (5, 2), (6, 2), (7, 0)):
            kind, number, length = (
                field,
                int(message.words[value]) if wire == 1 else value,
                behind - value if wire == 2 else 0,
            )
    return key, kind, number, length


_NO_INTS = np.empty(0, np.int64)
_NOTHING = Plane("", (), (), *(_NO_INTS,) * 6, {}, {}, (), Message(b"", "<none>"))


def runs_functions(trace: Trace) -> bool:
    """Whether a tf.function was called from Python while the trace ran."""
    return bool(Events.of(trace.plane(HOST)).called("EagerExecute").integers("is_func").any())
