"""
Decoding of the events of a line by compiled code, or by Python and NumPy where it was not compiled.

Both give the same columns, and refuse the same traces. The compiled code saves half a second for
each million events; `hatch_build.py` makes it where there is a C compiler.
"""

from __future__ import annotations

import ctypes
import functools
import zlib
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pytest_tfperf.protobuf import VARINT, Ints, Message

SOURCE = Path(__file__).with_name("compiled_decoder.c")
"""The compiled code's source, which wheels leave out."""
LIBRARY = SOURCE.with_suffix(".so")
EVENT_TAG = 0x22
"""The tag of XLine.events = 4, length-delimited."""
SHORT = 1 << 10
"""Bytes of a line below which a walk in Python takes less time than two calls of compiled code."""
_OFFSET = ctypes.c_int64
_ARRAY = ctypes.c_void_p
MAX_PS = 1 << 61
"""Longest time in a trace, 26 days; a sum of two such times still fits 64 bits."""
EventColumns = tuple[Ints, Ints, Ints, Ints, Ints]
"""metadata_id, offset_ps, duration_ps, and begin and end of the stats, each of shape (n,)."""
STAT_TAG = 0x22
"""The tag of XEvent.stats = 4, length-delimited."""
AT_ONCE = 1 << 15
"""Events to decode at once, as many as a processor's cache holds."""
FEWEST = 64
"""Events from which on a round for all of them is faster than a walk through each."""


def event_tags(message: Message, begin: int, end: int) -> tuple[Ints, int]:
    """Return the offsets of consecutive events' tags, shape (n,), and that behind the last one."""
    library = compiled_code() if end - begin >= SHORT else None
    if library is None:
        found, at = array("q"), begin
        while at < end and message.bytes[at] == EVENT_TAG:
            found.append(at)
            at = _behind_event(message, at, end)
        return np.array(found, np.int64), at
    behind, nothing = _OFFSET(begin), ctypes.c_void_p(None)
    raw, place = _address(message.bytes), ctypes.byref(behind)
    n_events = library.tfperf_find_events(raw, begin, end, end - begin, nothing, place)
    tags = np.empty(n_events, np.int64)
    n_events = library.tfperf_find_events(raw, begin, end, n_events, _address(tags), place)
    if behind.value < end and message.bytes[behind.value] == EVENT_TAG:
        _behind_event(message, behind.value, end)  # raises the error
    return tags[:n_events], behind.value


def _behind_event(message: Message, at: int, end: int) -> int:
    """Return the offset behind the event whose tag is at an offset, of a line up to `end`."""
    size, behind = message.varint(at + 1, end, "XLine.events")
    if size > end - behind:
        raise message.error("XLine", at, f"an event needs {size} bytes, {end - behind} are left")
    return behind + size


def decode_events(message: Message, tags: Ints) -> EventColumns:
    """Decode the events at some tags, as `event_columns` does."""
    library = compiled_code()
    if library is None:
        return event_columns(message, tags)
    columns = tuple(np.empty(tags.size, np.int64) for _ in range(5))
    raw, each = _address(message.bytes), [_address(column) for column in columns]
    metadata_id, offset, duration, begin, end = columns
    row, numbers = -1, [metadata_id, offset, duration]
    raw_tags, decode = _address(tags), library.tfperf_decode_events
    while (row := decode(raw, message.size, raw_tags, row + 1, tags.size, *each)) < tags.size:
        single_event(message, row, int(tags[row]), numbers, begin, int(end[row]))
    refuse_impossible_times(message, tags, offset, duration)
    return metadata_id, offset, duration, begin, end


def columns_of_each(message: Message, tags: Sequence[Ints]) -> Iterator[EventColumns]:
    """
    Yield the columns of each plane; neighbours of few events are decoded together.

    `tags` are those of each plane.
    """
    sizes = [each.size for each in tags]
    for first, last in batches(sizes, AT_ONCE):
        together = tags[first] if last - first == 1 else np.concatenate(tags[first:last])
        columns = decode_events(message, together)
        edges = np.cumsum([0, *sizes[first:last]]).tolist()
        for begin, end in pairwise(edges):
            metadata_id, *others = (column[begin:end] for column in columns)
            yield (metadata_id, *others)  # type: ignore[misc]


@functools.cache
def compiled_code() -> ctypes.CDLL | None:
    """Load the compiled code; None if none is for this machine, or it is not that of its source."""
    try:
        library = ctypes.CDLL(str(LIBRARY))
        compiled_from = ctypes.c_uint32.in_dll(library, "tfperf_source").value
    except (OSError, ValueError):  # ValueError: it has no such number
        return None
    if SOURCE.exists() and zlib.crc32(SOURCE.read_bytes()) != compiled_from:
        return None
    library.tfperf_find_events.argtypes = [_ARRAY, *[_OFFSET] * 3, *[_ARRAY] * 2]
    library.tfperf_find_events.restype = _OFFSET
    library.tfperf_decode_events.argtypes = [_ARRAY, _OFFSET, _ARRAY, *[_OFFSET] * 2, *[_ARRAY] * 5]
    library.tfperf_decode_events.restype = _OFFSET
    return library


def _address(array: npt.NDArray[np.generic]) -> int:
    return array.ctypes.data


def batches(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """
    Yield the first of each batch of neighbours and the one behind its last: of at most so much
    together, or of a single thing.
    """
    first, total = 0, 0
    for place, size in enumerate(sizes):
        if total + size > most and place > first:
            yield first, place
            first, total = place, 0
        total += size
    if sizes:
        yield first, len(sizes)


def event_columns(message: Message, tags: Ints) -> EventColumns:
    """
    Decode the events at some tags.

    Fields come in the order of their numbers, as every protobuf serialiser writes them; an event in
    any other order is decoded singly. As many events are decoded at once as a processor's cache
    holds. XEvent: metadata_id = 1, offset_ps = 2, duration_ps = 3, stats = 4.
    """
    columns = tuple(np.empty(tags.size, np.int64) for _ in range(5))
    for first in range(0, tags.size, AT_ONCE):
        some = slice(first, first + AT_ONCE)
        for column, values in zip(columns, _some_events(message, tags[some]), strict=True):
            column[some] = values
    metadata_id, offset, duration, begin, end = columns
    return metadata_id, offset, duration, begin, end


def _some_events(message: Message, tags: Ints) -> EventColumns:
    at = tags + 1
    size, width = message.varints(at)
    at += width
    end = at + size.view(np.int64)
    columns = []
    for number in (1, 2, 3):
        inside = np.where(at < end, at, message.size)  # behind the message is no tag
        value, width = message.varint_fields(inside, number << 3)
        columns.append(value.view(np.int64))
        at += width
    for row in _unusual_events(message, at, end):
        single_event(message, row, int(tags[row]), columns, at, int(end[row]))
    metadata_id, offset, duration = columns
    refuse_impossible_times(message, tags, offset, duration)
    return metadata_id, offset, duration, at, end


def refuse_impossible_times(message: Message, tags: Ints, offset: Ints, duration: Ints) -> None:
    """Raise a TraceError if an event starts or takes longer than `MAX_PS`."""
    if duration.size and (
        min(int(duration.min()), int(offset.min()) + MAX_PS) < 0
        or max(int(duration.max()), int(offset.max())) > MAX_PS
    ):
        bad = np.flatnonzero(
            (duration < 0) | (duration > MAX_PS) | (offset < -MAX_PS) | (offset > MAX_PS)
        )
        what = f"an event starts at {offset[bad[0]]} ps and takes {duration[bad[0]]} ps"
        raise message.error("XEvent", int(tags[bad[0]]), what)


def _unusual_events(message: Message, at: Ints, end: Ints) -> list[int]:
    """
    Return the rows of the events that have other bytes than stats behind their numbers, sorted.
    """
    rows = np.flatnonzero(at != end)
    at, end = at[rows], end[rows]
    unusual: list[int] = []
    while rows.size >= FEWEST:
        _, at = stat_spans(message, at)
        left = np.flatnonzero(at != end)
        rows, at, end = rows[left], at[left], end[left]
        inside = at < end
        if not inside.all():
            unusual += rows[~inside].tolist()
            rows, at, end = rows[inside], at[inside], end[inside]
    for row, begin, stop in zip(rows.tolist(), at.tolist(), end.tolist(), strict=True):
        is_stat = begin < stop and message.bytes[begin] == STAT_TAG
        if not is_stat or message.consecutive(begin, stop)[2] != stop:
            unusual.append(row)
    return sorted(unusual)


def stat_spans(message: Message, at: Ints) -> tuple[Ints, Ints]:
    """
    Return begins and ends of the stats whose tags are at these offsets; an end is behind the
    message where no stat is.
    """
    head = message.words[at]
    begin = at + 2
    end = begin + ((head >> np.uint64(8)) & np.uint64(0xFF)).view(np.int64)
    other = np.flatnonzero((head & np.uint64(0x80FF)) != STAT_TAG)
    if other.size:
        end[other] = message.size + 1
        wide = other[(head[other] & np.uint64(0xFF)) == STAT_TAG]
        size, width = message.varints(at[wide] + 1)
        begin[wide] = at[wide] + 1 + width
        end[wide] = begin[wide] + np.minimum(size, message.size).view(np.int64)
    return begin, end


def single_event(
    message: Message, row: int, tag: int, columns: list[Ints], at: Ints, end: int
) -> None:
    """Decode an event of unusual field order in place; its stats are searched in all of it."""
    _, at[row] = message.varint(tag + 1, message.size, "XEvent")
    for column in columns:
        column[row] = 0
    for number, wire, value, _ in message.fields(int(at[row]), end, "XEvent"):
        if number in (1, 2, 3) and wire == VARINT:
            columns[number - 1][row] = message.signed(value)
