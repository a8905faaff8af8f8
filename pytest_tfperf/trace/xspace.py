"""
XSpace files (`*.xplane.pb`) as columns: bytes in, numpy arrays out, no protobuf library and no object per event.

Field numbers are those of `tsl/profiler/protobuf/xplane.proto` (openxla/xla). Times inside a trace are picoseconds
since `Trace.origin_ns`, since absolute picoseconds do not fit 64 bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from pytest_tfperf.errors import TraceError
from pytest_tfperf.protobuf import BYTES, VARINT, Ints, Message
from pytest_tfperf.trace.event_offsets import EVENT_TAG, event_tags

T = TypeVar("T")

HOST = "/host:CPU"
"""Name of the plane that holds the host's threads."""

_STAT_TAG = 0x22  # XEvent.stats = 4, length-delimited
_AT_ONCE = 1 << 15  # events
_MAX_PS = 1 << 61  # 26 days; a sum of two such times still fits 64 bits


@dataclass(frozen=True, slots=True)
class Line:
    """One line (thread, stream) of a plane; its events are rows `first` to `last` (excluded) of the plane's columns."""

    id: int
    name: str
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class Plane:
    """
    One plane of a trace (a host, a device), its events as columns of shape (n_events,).

    `name_index` points into `names`; `start_ps` counts from the trace's origin; the stats of event i are the bytes
    `stats_begin[i]:stats_end[i]` of `message`. It has no slots, for `once` to refer to it weakly.
    """

    name: str
    lines: tuple[Line, ...]
    names: tuple[str, ...]
    name_index: Ints
    line_index: Ints
    start_ps: Ints
    duration_ps: Ints
    stats_begin: Ints
    stats_end: Ints
    stat_names: dict[int, str]
    metadata_stats: dict[str, tuple[tuple[int, int], ...]]
    stats: tuple[tuple[int, int], ...]
    message: Message


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """A decoded XSpace: the planes of one host."""

    path: str
    origin_ns: int
    planes: tuple[Plane, ...]
    hostnames: tuple[str, ...]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]

    def plane(self, name: str) -> Plane | None:
        """The first plane of that name, None where the trace has none."""
        return next((plane for plane in self.planes if plane.name == name), None)


def once(function: Callable[[Plane], T]) -> Callable[[Plane], T]:
    """A function of a plane that is computed once for each, and forgotten with it."""
    known: WeakKeyDictionary[Plane, T] = WeakKeyDictionary()

    @functools.wraps(function)
    def remembered(plane: Plane) -> T:
        if plane not in known:
            known[plane] = function(plane)
        return known[plane]

    return remembered


def read_trace(path: Path | str) -> Trace:
    """
    The trace in a file.

    Raises:
        TraceError: If the file cannot be read, is empty, truncated or no XSpace.
    """
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise TraceError(f"trace {path}: cannot be read: {error.strerror}") from error
    return decode_trace(raw, str(path))


def decode_trace(raw: bytes, path: str = "<bytes>") -> Trace:
    """
    The trace in the bytes of an XSpace message; `path` stands in error messages.

    Raises:
        TraceError: If the bytes are empty, truncated or no XSpace.
    """
    message = Message(raw, path)
    plane_spans, texts = [], {2: [], 3: [], 4: []}  # type: ignore[var-annotated]  # XSpace: errors, warnings, hostnames
    for number, wire, value, end in message.fields(0, message.size, "XSpace"):
        if number == 1 and wire == BYTES:
            plane_spans.append((value, end))
        elif number in texts and wire == BYTES:
            texts[number].append(message.text(value, end))
    if not plane_spans:
        raise TraceError(
            f"trace {path}: no plane in {message.size} bytes; this is no XSpace, or an empty one"
        )
    layouts = [_PlaneLayout.read(message, begin, end) for begin, end in plane_spans]
    origin = min(
        (line.timestamp_ns for layout in layouts for line in layout.lines if line.tags.size),
        default=0,
    )
    planes = tuple(layout.decode(origin) for layout in layouts)
    return Trace(path, origin, planes, tuple(texts[4]), tuple(texts[2]), tuple(texts[3]))


@dataclass(frozen=True, slots=True, eq=False)
class _LineLayout:
    """A line before its events are decoded: where the tag of each event stands."""

    id: int
    name: str
    timestamp_ns: int
    tags: Ints

    @classmethod
    def read(cls, message: Message, begin: int, end: int) -> _LineLayout:
        """XLine: id = 1, name = 2, timestamp_ns = 3, events = 4, display_name = 11."""
        texts: dict[int, str] = {}
        numbers: dict[int, int] = {}
        tags: list[Ints] = []
        at = begin
        while at < end:
            found, at = event_tags(message, at, end)
            tags.append(found)
            for number, wire, value, behind in message.fields(at, end, "XLine"):
                if number == 4 and wire == BYTES:
                    if message.bytes[at] != EVENT_TAG:
                        raise message.error(
                            "XLine", at, "the tag of an event takes more bytes than it needs"
                        )
                    break
                if wire == BYTES:
                    texts[number] = message.text(value, behind)
                elif wire == VARINT:
                    numbers[number] = message.signed(value)
                at = behind
            else:
                break
        stamp = numbers.get(3, 0)
        if stamp < 0:
            raise message.error("XLine", begin, f"timestamp_ns is {stamp}")
        name = texts.get(11) or texts.get(2, "")
        return cls(
            numbers.get(1, 0), name, stamp, np.concatenate(tags) if tags else np.empty(0, np.int64)
        )


@dataclass(frozen=True, slots=True, eq=False)
class _PlaneLayout:
    """A plane before its events are decoded."""

    message: Message
    name: str
    lines: list[_LineLayout]
    event_names: dict[int, str]
    event_metadata: dict[int, tuple[tuple[int, int], ...]]
    stat_names: dict[int, str]
    stats: tuple[tuple[int, int], ...] = field(default=())

    @classmethod
    def read(cls, message: Message, begin: int, end: int) -> _PlaneLayout:
        """XPlane: name = 2, lines = 3, event_metadata = 4, stat_metadata = 5 (maps: key = 1, value = 2), stats = 6."""
        name, lines, stats = "", [], []
        event_names: dict[int, str] = {}
        event_metadata: dict[int, tuple[tuple[int, int], ...]] = {}
        stat_names: dict[int, str] = {}
        for number, wire, value, behind in message.fields(begin, end, "XPlane"):
            if wire != BYTES:
                continue
            if number == 2:
                name = message.text(value, behind)
            elif number == 3:
                lines.append(_LineLayout.read(message, value, behind))
            elif number == 4:
                key, event_names[key], event_metadata[key] = _metadata(message, value, behind)
            elif number == 5:
                key, stat_names[key], _ = _metadata(message, value, behind)
            elif number == 6:
                stats.append((value, behind))
        return cls(message, name, lines, event_names, event_metadata, stat_names, tuple(stats))

    def decode(self, origin_ns: int) -> Plane:
        """The plane with its events as columns."""
        counts = [line.tags.size for line in self.lines]
        tags = (
            np.concatenate([line.tags for line in self.lines])
            if self.lines
            else np.empty(0, np.int64)
        )
        line_index = np.repeat(np.arange(len(self.lines)), counts)
        shift = np.array(
            [
                (line.timestamp_ns - origin_ns) * 1000 if line.tags.size else 0
                for line in self.lines
            ],
            object,
        )
        if any(abs(value) > _MAX_PS for value in shift):
            raise self.message.error("XLine", 0, "two lines start more than 26 days apart")
        metadata_id, offset, duration, stats_begin, stats_end = _events(self.message, tags)
        names, name_index = self._names(metadata_id)
        start = shift.astype(np.int64)[line_index] + offset if tags.size else offset
        last = np.cumsum(counts, dtype=np.int64) if counts else np.empty(0, np.int64)
        lines = tuple(
            Line(line.id, line.name, int(end) - line.tags.size, int(end))
            for line, end in zip(self.lines, last, strict=True)
        )
        by_name = {
            self.event_names[key]: spans for key, spans in self.event_metadata.items() if spans
        }
        return Plane(
            self.name,
            lines,
            names,
            name_index,
            line_index,
            start,
            duration,
            stats_begin,
            stats_end,
            self.stat_names,
            by_name,
            self.stats,
            self.message,
        )

    def _names(self, metadata_id: Ints) -> tuple[tuple[str, ...], Ints]:
        """The distinct names of the events, and which of them each event has."""
        if not metadata_id.size:
            return (), metadata_id
        ids, index = _distinct(metadata_id)
        texts = [self.event_names.get(int(key), f"event {key}") for key in ids]
        names = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        merged = np.array([names[text] for text in texts], np.int64)
        return tuple(names), merged[index]


def _distinct(values: Ints) -> tuple[Ints, Ints]:
    """The distinct values, sorted, and which of them each is; by a table where they are small, as ids are."""
    low, high = int(values.min()), int(values.max())
    if not 0 <= low <= high < 1 << 20:
        distinct, index = np.unique(values, return_inverse=True)
        return distinct, index.reshape(-1)
    used = np.zeros(high + 1, bool)
    used[values] = True
    return np.flatnonzero(used), (np.cumsum(used) - 1)[values]


def _metadata(
    message: Message, begin: int, end: int
) -> tuple[int, str, tuple[tuple[int, int], ...]]:
    """One entry of a metadata map. XEventMetadata and XStatMetadata: name = 2; XEventMetadata: stats = 5."""
    key, name, stats = 0, "", []
    for number, wire, value, behind in message.fields(begin, end, "metadata map"):
        if number == 1 and wire == VARINT:
            key = message.signed(value)
        elif number == 2 and wire == BYTES:
            for inner, inner_wire, inner_value, inner_end in message.fields(
                value, behind, "metadata"
            ):
                if inner == 2 and inner_wire == BYTES:
                    name = message.text(inner_value, inner_end)
                elif inner == 5 and inner_wire == BYTES:
                    stats.append((inner_value, inner_end))
    return key, name, tuple(stats)


def _events(message: Message, tags: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """
    metadata_id, offset_ps, duration_ps, begin and end of the stats of the events at these tags, each of shape (n,).

    XEvent: metadata_id = 1, offset_ps = 2, duration_ps = 3, stats = 4. Fields come in this order, as every protobuf
    serialiser writes them; an event in any other order is read singly. So many are decoded at once as a processor's cache holds.
    """
    columns = np.zeros((5, tags.size), np.int64)
    for first in range(0, tags.size, _AT_ONCE):
        columns[:, first : first + _AT_ONCE] = _some_events(message, tags[first : first + _AT_ONCE])
    metadata_id, offset, duration, begin, end = columns
    return metadata_id, offset, duration, begin, end


def _some_events(message: Message, tags: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    size, width = message.varints(tags + 1)
    at = tags + 1 + width
    end = at + size.astype(np.int64)
    columns = []
    for number in (1, 2, 3):
        column = np.zeros(tags.size, np.int64)
        present = np.flatnonzero((at < end) & (message.bytes[at] == number << 3))
        value, width = message.varints(at[present] + 1)
        column[present] = value.view(np.int64)
        at[present] += 1 + width
        columns.append(column)
    for row in np.flatnonzero(_behind_stats(message, at, end) != end).tolist():
        _single_event(message, row, int(tags[row]), columns, at, int(end[row]))
    metadata_id, offset, duration = columns
    bad = np.flatnonzero(
        (duration < 0) | (duration > _MAX_PS) | (offset < -_MAX_PS) | (offset > _MAX_PS)
    )
    if bad.size:
        what = f"an event starts at {offset[bad[0]]} ps and takes {duration[bad[0]]} ps"
        raise message.error("XEvent", int(tags[bad[0]]), what)
    return metadata_id, offset, duration, at, end


def _behind_stats(message: Message, at: Ints, end: Ints) -> Ints:
    """The offset behind the stats that follow each other from each `at` on; one past `end` where a stat is longer than its event."""
    at = at.copy()
    more = np.arange(at.size)
    while (more := more[(at[more] < end[more]) & (message.bytes[at[more]] == _STAT_TAG)]).size:
        size, width = message.varints(at[more] + 1)
        behind = at[more] + 1 + width + np.minimum(size, message.size).astype(np.int64)
        at[more] = np.minimum(behind, end[more] + 1)
    return at


def _single_event(
    message: Message, row: int, tag: int, columns: list[Ints], at: Ints, end: int
) -> None:
    """One event whose fields stand in an unusual order: its stats are looked for in the whole of it."""
    _, at[row] = message.varint(tag + 1, message.size, "XEvent")
    for column in columns:
        column[row] = 0
    for number, wire, value, _ in message.fields(int(at[row]), end, "XEvent"):
        if number in (1, 2, 3) and wire == VARINT:
            columns[number - 1][row] = message.signed(value)
