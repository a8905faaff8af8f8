"""The stats of many events as columns, decoded at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_tfperf.protobuf import BYTES, FIXED64, VARINT, Ints, Message
from pytest_tfperf.trace.event_decoder import FEWEST, STAT_TAG, stat_spans
from pytest_tfperf.trace.xspace import Plane, once

Mask = npt.NDArray[np.bool_]
_Columns = tuple[Ints, Ints, npt.NDArray[np.uint64], Ints]

_SMALL = 1 << 21  # bytes of stats that take at most some 60 MB as columns
_WIRES = np.full(256, 255, np.uint8)
"""Wire type of each tag of XStat's value, 255 of another tag."""
_WIRES[[0x18, 0x20, 0x38, 0x11, 0x2A, 0x32]] = [VARINT] * 3 + [FIXED64] + [BYTES] * 2
_KINDS = np.r_[4, np.arange(1, 256) >> 3]
_DIGITS = re.compile(r"-?[0-9]{1,19}").fullmatch


@dataclass(frozen=True, eq=False)
class Stats:
    """
    Stats in long form: stat j belongs to event `owner[j]`.

    All columns have the shape (n_stats,).
    """

    plane: Plane
    n_events: int
    owner: Ints
    """Index of each stat's event."""
    key: Ints
    """Key of each stat's name."""
    kind: Ints
    """Field number of XStat's value: 2 double, 3 uint64, 4 int64, 5 string, 6 bytes, 7 ref."""
    value: npt.NDArray[np.uint64]
    """The number, the bits of a double, or the offset of a string or bytes."""
    length: Ints
    """Length of a string or bytes."""

    @classmethod
    def read(cls, plane: Plane, rows: Ints, stat: str | None = None) -> Stats:
        """
        Read the stats of some rows of a plane; those of a small plane are decoded once.

        Those that cannot have the name `stat` may be left out.
        """
        if _is_small(plane):
            first, (key, kind, value, length) = _columns_of_small(plane)
            owner, at = _taken(first, rows)
            return cls(plane, rows.size, owner, key[at], kind[at], value[at], length[at])
        return cls._decoded(plane, rows, stat)

    @classmethod
    def _decoded(cls, plane: Plane, rows: Ints, stat: str | None = None) -> Stats:
        """Decode the stats of some rows, as `read` reads them."""
        message = plane.message
        starts = (
            None
            if stat is None
            else [key_field(key)[1] for key, name in plane.stat_names.items() if name == stat]
        )
        rounds: list[tuple[Ints, Ints, Ints]] = []
        for owner, begin, stop in _rounds(message, plane.stats_begin[rows], plane.stats_end[rows]):
            if starts is None:
                rounds.append((owner, begin, stop))
            else:  # two bytes identify a stat of another key, if its key comes first
                may = message.bytes.take(begin) != 0x08
                start = message.bytes.take(begin + 1)
                for wanted in starts:
                    may |= start == wanted
                rounds.append(
                    (owner, begin, stop) if may.all() else (owner[may], begin[may], stop[may])
                )
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
        """Read the stats in spans of the plane's bytes, given their owners, shape (n_stats,)."""
        return cls(plane, n_owners, owner, *_stat_values(plane, begin, end))

    def content(self, place: int) -> float | str | bytes:
        """Return the value of stat `place` in its own type; of a reference the text."""
        kind, value = int(self.kind[place]), int(self.value[place])
        if kind == 2:
            return float(self.value[place : place + 1].view(np.float64)[0])
        return stat_content(self.plane, kind, value, int(self.length[place]))

    def text(self, place: int) -> str:
        """Return the value of stat `place` as text."""
        content = self.content(place)
        return content.decode("utf-8", "replace") if isinstance(content, bytes) else str(content)

    def present(self, stat: str) -> Mask:
        """Return whether each event carries the stat, shape (n_events,)."""
        mask: Mask = np.zeros(self.n_events, bool)
        mask[self.owner[self._of(stat)]] = True
        return mask

    def integers(self, stat: str, default: int) -> Ints:
        """Return integers as `Events.integers` does."""
        result = np.full(self.n_events, default, np.int64)
        chosen = self._of(stat)
        number = chosen[(self.kind[chosen] == 3) | (self.kind[chosen] == 4)]
        result[self.owner[number]] = self.value[number].view(np.int64)
        for place in chosen[self.kind[chosen] >= 5]:
            text = self.text(int(place))
            if _DIGITS(text) and -(1 << 63) <= int(text) < 1 << 63:
                result[self.owner[place]] = int(text)
        return result

    def texts(self, stat: str) -> list[str]:
        """Return texts as `Events.texts` does."""
        result = [""] * self.n_events
        for place in self._of(stat).tolist():
            result[self.owner[place]] = self.text(place)
        return result

    def _of(self, stat: str) -> Ints:
        keys = [key for key, name in self.plane.stat_names.items() if name == stat]
        return np.flatnonzero(np.isin(self.key, keys)) if keys else np.empty(0, np.int64)


def stat_content(plane: Plane, kind: int, value: int, length: int) -> int | str | bytes:
    """Return the value of a stat other than a double in its own type; of a reference the text."""
    if kind == 5:
        return plane.message.text(value, value + length)
    if kind == 6:
        return plane.message.slice(value, value + length)
    if kind == 7:
        return plane.stat_names.get(value, "")
    return plane.message.signed(value) if kind == 4 else value


def key_field(key: int) -> bytes:
    """Encode XStat's metadata_id = 1 with a value."""
    groups, rest = [], key % (1 << 64)
    while rest > 0x7F:
        groups.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([0x08, *groups, rest])


@once
def _is_small(plane: Plane) -> bool:
    """Return whether the stats of all events of a plane have few bytes."""
    return int(plane.stats_end.sum() - plane.stats_begin.sum()) <= _SMALL


@once
def _columns_of_small(plane: Plane) -> tuple[Ints, _Columns]:
    """Decode all stats of a small plane."""
    every = Stats._decoded(plane, np.arange(plane.start_ps.size))
    order = np.argsort(every.owner, kind="stable")
    first = np.r_[0, np.cumsum(np.bincount(every.owner, minlength=plane.start_ps.size))]
    columns = every.key[order], every.kind[order], every.value[order], every.length[order]
    return first, columns


def _taken(first: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return the owner of each stat of some rows, and its place; `first` is as above."""
    begin, counts = first[rows], first[rows + 1] - first[rows]
    owner = np.repeat(np.arange(rows.size), counts)
    before = np.cumsum(counts) - counts
    return owner, np.arange(owner.size) + (begin - before)[owner]


def _rounds(message: Message, at: Ints, end: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """
    Find the stats of some events, in one round for each place in their lists of stats.

    The last few events are walked through one by one, since one of them may have very many.
    """
    owner = np.arange(at.size)
    while (more := at < end).any():
        if not more.all():
            at, end, owner = at[more], end[more], owner[more]
        begin, behind = stat_spans(message, at)
        # `event_columns` has checked that no stat is longer than its event.
        plain = behind <= end
        if at.size < FEWEST:
            plain = np.zeros(at.size, bool)
        if not plain.all():
            for row in np.flatnonzero(~plain):
                yield _spans_of_one(message, int(at[row]), int(end[row]), int(owner[row]))
            begin, behind, end, owner = begin[plain], behind[plain], end[plain], owner[plain]
        at = behind
        yield owner, begin, at


def _spans_of_one(message: Message, at: int, end: int, owner: int) -> tuple[Ints, Ints, Ints]:
    """Find the stats of an event, which may have other fields between them."""
    begins: list[int] = []
    ends: list[int] = []
    if message.bytes[at] == STAT_TAG:
        begins, ends, at = message.consecutive(at, end)
    for number, wire, begin, stop in message.fields(at, end, "XEvent"):
        if number == 4 and wire == BYTES:
            begins.append(begin)
            ends.append(stop)
    found = np.array([begins, ends], np.int64)
    return np.full(len(begins), owner), found[0], found[1]


def _stat_values(
    plane: Plane, begin: Ints, end: Ints
) -> tuple[Ints, Ints, npt.NDArray[np.uint64], Ints]:
    """
    Decode the stats in some spans.

    XStat: metadata_id = 1; then one of double_value = 2 (fixed64), uint64_value = 3, int64_value =
    4 (varints), str_value = 5, bytes_value = 6 (length-delimited), ref_value = 7 (varint). An empty
    value is the number 0. A stat in any other order, or with other fields, is decoded singly, once.
    """
    message = plane.message
    length, number = np.zeros(begin.size, np.int64), np.zeros(begin.size, np.uint64)
    keys, width = message.varint_fields(begin, 0x08)
    key, at = keys.view(np.int64), begin + width
    tag = np.where(at < end, message.bytes.take(at), 0)
    double, sized, plain = (
        np.flatnonzero(_WIRES.take(tag) == wire) for wire in (FIXED64, BYTES, VARINT)
    )
    number[double] = message.words[at[double] + 1]
    at[double] += 9
    number[plain], width = message.varints(at[plain] + 1)
    at[plain] += 1 + width
    value, width = message.varints(at[sized] + 1)
    at[sized] += 1 + width
    number[sized], length[sized] = at[sized].view(np.uint64), value.view(np.int64)
    at += length
    kind = _KINDS.take(tag)
    known, unusual = _unusual_stats(plane), np.flatnonzero(at != end)
    spans = zip(unusual.tolist(), begin[unusual].tolist(), end[unusual].tolist(), strict=True)
    for row, *span in spans:
        found = known.get(span[0])
        if found is None:
            found = known[span[0]] = _single_stat(message, *span)
        key[row], kind[row], number[row], length[row] = found
    return key, kind, number, length


@once
def _unusual_stats(_: Plane) -> dict[int, tuple[int, int, int, int]]:
    """Make a memory for the stats of a plane that are decoded singly, by their begin."""
    return {}


def _single_stat(message: Message, begin: int, end: int) -> tuple[int, int, int, int]:
    """Decode one stat whose fields have an unusual order."""
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
