"""
Decoding of XSpace files (`*.xplane.pb`) into numpy columns, without a protobuf library.

There is no object per event. Field numbers are those of `tsl/profiler/protobuf/xplane.proto`
(openxla/xla). Times in a trace are picoseconds since `Trace.origin_ns`, since absolute picoseconds
do not fit 64 bits.
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
from pytest_tfperf.trace.event_decoder import (
    EVENT_TAG,
    MAX_PS,
    EventColumns,
    columns_of_each,
    event_tags,
)
from pytest_tfperf.trace.file import (
    message_of,
    read_message,
    refuse_many_devices,
    refuse_many_planes,
)
from pytest_tfperf.trace.intervals import distinct
from pytest_tfperf.trace.logdir import other_kind

T = TypeVar("T")

HOST = "/host:CPU"
"""Name of the plane that holds the host's threads."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line (thread, stream) of a plane."""

    id: int
    name: str
    first: int
    """First row of its events in the plane's columns."""
    last: int
    """Row behind its events."""


@dataclass(frozen=True, eq=False)
class Plane:
    """
    One plane of a trace (a host, a device), with its events as columns of shape (n_events,).

    It has no slots, so that `once` can refer to it weakly.
    """

    name: str
    lines: tuple[Line, ...]
    names: tuple[str, ...]
    """Distinct names of the events."""
    name_index: Ints
    """Index of each event's name in `names`."""
    line_index: Ints
    """Index of each event's line in `lines`."""
    start_ps: Ints
    """Picoseconds since the trace's origin."""
    duration_ps: Ints
    stats_begin: Ints
    """Offset of the event's stats in `message`."""
    stats_end: Ints
    """Offset behind the event's stats."""
    stat_names: dict[int, str]
    """Names of stats by key."""
    metadata_stats: dict[str, tuple[tuple[int, int], ...]]
    """Spans of the stats that all event metadata of a name have, by event name."""
    stats: tuple[tuple[int, int], ...]
    """Spans of the plane's own stats."""
    message: Message
    """The bytes of the trace."""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """A decoded XSpace: the planes of one host."""

    path: str
    """Path of the file, for messages."""
    origin_ns: int
    """Nanoseconds since 1970 of the trace's origin."""
    planes: tuple[Plane, ...]
    hostnames: tuple[str, ...]
    errors: tuple[str, ...]
    """Errors that the profiler reports."""
    warnings: tuple[str, ...]
    """Warnings that the profiler reports."""

    def plane(self, name: str) -> Plane | None:
        """Return the first plane of a name, or None."""
        return next((plane for plane in self.planes if plane.name == name), None)


def once(function: Callable[[Plane], T]) -> Callable[[Plane], T]:
    """Cache a function of a plane for as long as the plane lives."""
    known: WeakKeyDictionary[Plane, T] = WeakKeyDictionary()

    @functools.wraps(function)
    def remembered(plane: Plane) -> T:
        if plane not in known:
            known[plane] = function(plane)
        return known[plane]

    return remembered


def read_trace(path: Path | str) -> Trace:
    """Read a trace file, perhaps compressed by gzip; TraceError if it is no whole XSpace."""
    return _decoded(read_message(Path(path)))


def decode_trace(raw: bytes, path: str = "<bytes>") -> Trace:
    """
    Decode an XSpace message, perhaps compressed by gzip; `path` stands in error messages.

    Raises TraceError if it is not whole, or has more planes or devices than `plane_limits` allows.
    """
    return _decoded(message_of(raw, path))


def _decoded(message: Message) -> Trace:
    path = message.path
    if other := other_kind(message.bytes[:_HEAD].tobytes()):
        raise TraceError(f"{path} {other}")
    plane_spans: list[tuple[int, int]] = []
    texts: dict[int, list[str]] = {2: [], 3: [], 4: []}  # XSpace: errors, warnings, hostnames
    for number, wire, value, end in message.fields(0, message.size, "XSpace"):
        if number == 1 and wire == BYTES:
            plane_spans.append((value, end))
        elif number in texts and wire == BYTES:
            texts[number].append(message.text(value, end))
    if not plane_spans:
        raise TraceError(
            f"trace {path}: no plane in {message.size} bytes; this is not an XSpace, or it is empty"
        )
    refuse_many_planes(path, len(plane_spans))
    layouts = [_PlaneLayout.read(message, begin, end) for begin, end in plane_spans]
    with_events = (one.name for one in layouts if any(line.tags.size for line in one.lines))
    refuse_many_devices(path, with_events)
    lines = (line for layout in layouts for line in layout.lines)
    origin = min((line.timestamp_ns for line in lines if line.tags.size), default=0)
    columns = columns_of_each(message, [layout.tags for layout in layouts])
    planes = tuple(layout.decode(origin, own) for layout, own in zip(layouts, columns, strict=True))
    return Trace(path, origin, planes, tuple(texts[4]), tuple(texts[2]), tuple(texts[3]))


@dataclass(frozen=True, slots=True, eq=False)
class _LineLayout:
    """A line before its events are decoded."""

    id: int
    name: str
    timestamp_ns: int
    tags: Ints
    """Offset of the tag of each event."""

    @classmethod
    def read(cls, message: Message, begin: int, end: int) -> _LineLayout:
        """Read XLine: id = 1, name = 2, timestamp_ns = 3, events = 4, display_name = 11."""
        if begin == end:
            return _EMPTY_LINE
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
                            "XLine", at, "the tag of an event is longer than necessary"
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
            numbers.get(1, 0),
            name,
            stamp,
            tags[0] if len(tags) == 1 else np.concatenate([np.empty(0, np.int64), *tags]),
        )


_HEAD = 16  # bytes that tell other files
_EMPTY_LINE = _LineLayout(0, "", 0, np.empty(0, np.int64))


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
        """
        Read XPlane: name = 2, lines = 3, event_metadata = 4, stat_metadata = 5, stats = 6.

        Metadata are maps: key = 1, value = 2.
        """
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

    @property
    def tags(self) -> Ints:
        """Offset of the tag of each event."""
        return np.concatenate([np.empty(0, np.int64), *(line.tags for line in self.lines)])

    def decode(self, origin_ns: int, columns: EventColumns) -> Plane:
        """Make the plane from its `event_columns`; `origin_ns` is the trace's origin."""
        counts = [line.tags.size for line in self.lines]
        line_index = np.repeat(np.arange(len(self.lines)), counts)
        shift = [
            (line.timestamp_ns - origin_ns) * 1000 if line.tags.size else 0 for line in self.lines
        ]
        if any(abs(value) > MAX_PS for value in shift):
            raise self.message.error("XLine", 0, "two lines start more than 26 days apart")
        metadata_id, start, duration, stats_begin, stats_end = columns
        names, name_index = self._names(metadata_id)
        last = np.cumsum(counts, dtype=np.int64).tolist()
        lines = tuple(
            Line(line.id, line.name, end - line.tags.size, end)
            for line, end in zip(self.lines, last, strict=True)
        )
        for one, begin in zip(lines, shift, strict=True):
            start[one.first : one.last] += begin
        for column in (start, duration, line_index):
            column.flags.writeable = False  # selections of all events share them
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
            self._stats_by_name(),
            self.stats,
            self.message,
        )

    def _stats_by_name(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """
        Return the spans of the stats of each event name.

        The ops of two programs may have one text. Of these only stats remain that are equal in all.
        """
        by_name: dict[str, tuple[tuple[int, int], ...]] = {}
        for key, spans in self.event_metadata.items():
            name = self.event_names[key]
            if spans and name in by_name:
                values = {self.message.slice(*span) for span in spans}
                spans = tuple(span for span in by_name[name] if self.message.slice(*span) in values)
                by_name[name] = spans
            elif spans:
                by_name[name] = spans
        return by_name

    def _names(self, metadata_id: Ints) -> tuple[tuple[str, ...], Ints]:
        """Return the distinct names of the events, and the index of each event's name."""
        if not metadata_id.size:
            return (), metadata_id
        ids, index = distinct(metadata_id)
        texts = [self.event_names.get(int(key), f"event {key}") for key in ids]
        names = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        if len(names) == len(texts):
            return tuple(names), index
        merged = np.array([names[text] for text in texts], np.int64)
        return tuple(names), merged[index]


def _metadata(
    message: Message, begin: int, end: int
) -> tuple[int, str, tuple[tuple[int, int], ...]]:
    """
    Read one entry of a metadata map.

    XEventMetadata and XStatMetadata: name = 2; XEventMetadata: stats = 5.
    """
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
