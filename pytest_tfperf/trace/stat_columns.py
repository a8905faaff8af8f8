"""The stats of many events as columns, decoded at once."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_tfperf.protobuf import Ints, Message
from pytest_tfperf.trace.xspace import Plane

Mask = npt.NDArray[np.bool_]

_DIGITS = re.compile(r"-?[0-9]{1,19}").fullmatch


@dataclass(frozen=True, eq=False)
class Stats:
    """
    Stats in long form: stat j belongs to event `owner[j]`.

    All columns have the shape (n_stats,).
    """

    plane: Plane
    """Plane of the events."""
    n_events: int
    """Number of events."""
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
        Read the stats of some rows of a plane, in one round for each place in their lists of stats.

        Args:
            plane: The plane.
            rows: The rows, shape (n_events,).
            stat: A name; stats that cannot have it are left out.
        """
        message = plane.message
        starts = (
            None
            if stat is None
            else [key_field(key)[1] for key, name in plane.stat_names.items() if name == stat]
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
            # `event_columns` has checked that no stat is longer than its event.
            at = begin + size.view(np.int64)
            if starts is None:
                rounds.append((owner, begin, at))
            else:  # two bytes identify a stat of another key, if its key comes first
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
        """
        Read the stats in some spans of the plane's bytes.

        Args:
            plane: The plane.
            n_owners: Number of owners.
            owner: Owner of each stat, shape (n_stats,).
            begin: Begins of the spans.
            end: Ends of the spans.
        """
        return cls(plane, n_owners, owner, *_stat_values(plane.message, begin, end))

    def content(self, place: int) -> float | str | bytes:
        """Return the value of stat `place` in its own type; of a reference the text."""
        kind, value = int(self.kind[place]), int(self.value[place])
        if kind == 2:
            return float(self.value[place : place + 1].view(np.float64)[0])
        return stat_content(self.plane, kind, value, int(self.length[place]))

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
            text = self._text(int(place))
            if _DIGITS(text) and -(1 << 63) <= int(text) < 1 << 63:
                result[self.owner[place]] = int(text)
        return result

    def texts(self, stat: str) -> list[str]:
        """Return texts as `Events.texts` does."""
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
    """
    Return the value of a stat other than a double in its own type; of a reference the text.

    Args:
        plane: The plane.
        kind: As in `Stats`.
        value: As in `Stats`.
        length: As in `Stats`.
    """
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


def _spans_of_one(message: Message, at: int, end: int, owner: int) -> tuple[Ints, Ints, Ints]:
    """
    Find the stats of an event that has other fields between them.

    Args:
        message: The trace.
        at: Offset of the first field.
        end: Offset behind the event.
        owner: The event's index.

    Returns:
        Owner, begins and ends of the stats.
    """
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
    Decode the stats in some spans.

    XStat: metadata_id = 1; then one of double_value = 2 (fixed64), uint64_value = 3, int64_value =
    4 (varints), str_value = 5, bytes_value = 6 (length-delimited), ref_value = 7 (varint). An empty
    value is the number 0. A stat in any other order, or with other fields, is decoded singly.

    Args:
        message: The trace.
        begin: Begins of the spans.
        end: Ends of the spans.

    Returns:
        key, kind, value and length, as in `Stats`.
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
    """
    Decode one stat whose fields have an unusual order.

    Args:
        message: The trace.
        begin: Begin of the stat.
        end: End of the stat.

    Returns:
        key, kind, value and length, as in `Stats`.
    """
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
