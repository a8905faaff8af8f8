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

from pytest_tfperf.protobuf import Ints, Message
from pytest_tfperf.trace import event_columns
from pytest_tfperf.trace.event_columns import AT_ONCE, EventColumns, batches

SOURCE = Path(__file__).with_name("compiled_decoder.c")
"""The compiled code's source, which wheels leave out."""
LIBRARY = SOURCE.with_suffix(".so")
"""The compiled code."""
EVENT_TAG = 0x22
"""The tag of XLine.events = 4, length-delimited."""
SHORT = 1 << 10
"""Bytes of a line below which a walk in Python takes less time than two calls of compiled code."""
_OFFSET = ctypes.c_int64
_ARRAY = ctypes.c_void_p


def event_tags(message: Message, begin: int, end: int) -> tuple[Ints, int]:
    """
    Find the tags of consecutive events.

    Args:
        message: The trace.
        begin: Offset of the first tag.
        end: Offset behind the line.

    Returns:
        The offsets of the tags, shape (n,), and the offset behind the last event.

    Raises:
        TraceError: If an event is longer than the bytes left.
    """
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
    """Decode the events at some tags, as `event_columns.event_columns` does."""
    library = compiled_code()
    if library is None:
        return event_columns.event_columns(message, tags)
    columns = tuple(np.empty(tags.size, np.int64) for _ in range(5))
    raw, each = _address(message.bytes), [_address(column) for column in columns]
    metadata_id, offset, duration, begin, end = columns
    row, numbers = -1, [metadata_id, offset, duration]
    raw_tags, decode = _address(tags), library.tfperf_decode_events
    while (row := decode(raw, message.size, raw_tags, row + 1, tags.size, *each)) < tags.size:
        event_columns.single_event(message, row, int(tags[row]), numbers, begin, int(end[row]))
    event_columns.refuse_impossible_times(message, tags, offset, duration)
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
    """
    Load the compiled code.

    Returns:
        The library, or None if it was not compiled, is of another machine, or is not that of its
        source.
    """
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
