"""
Perfetto's trace format: packets with track descriptors and events, names interned for each track.

Source of field numbers: protos/perfetto/trace (google/perfetto), in trace_packet.proto,
track_event/track_descriptor.proto, track_event/track_event.proto,
track_event/debug_annotation.proto and interned_data/interned_data.proto. Times are nanoseconds;
a shorter slice has no length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from pytest_tfperf.export.event_args import Args
from pytest_tfperf.export.tracks import Counter, Process, Slices, Track
from pytest_tfperf.protobuf_fields import number_field, sized_field, text_field, varint

_BEGIN, _END, _COUNTER = 1, 2, 4  # TrackEvent.Type
_CLEARED, _NEEDS_STATE = 1, 2  # TracePacket.SequenceFlags
_BYTES = 3  # CounterDescriptor.Unit
_EXPLICIT = 3  # TrackDescriptor.ChildTracksOrdering


def write_perfetto(file: BinaryIO, processes: Iterable[Process]) -> None:
    """Write the processes, one packet sequence for each track."""
    for process in processes:
        described = sized_field(3, number_field(1, process.id) + text_field(6, process.name))
        file.write(_packet(_descriptor(process.id, 0, described + number_field(11, _EXPLICIT))))
        for rank, track in enumerate(process.tracks):
            thread = (
                number_field(1, process.id) + number_field(2, track.id) + text_field(5, track.name)
            )
            _begin_sequence(
                file,
                track.id,
                _descriptor(track.id, process.id, sized_field(4, thread) + number_field(12, rank)),
            )
            for packets in _Sequence(track).packets():
                file.write(packets)
        for counter in process.counters:
            described = text_field(2, counter.name) + sized_field(8, number_field(3, _BYTES))
            _begin_sequence(file, counter.id, _descriptor(counter.id, process.id, described))
            file.write(b"".join(_samples(counter)))


def _begin_sequence(file: BinaryIO, sequence: int, descriptor: bytes) -> None:
    """
    Write the first packet of a sequence, which puts all its events on one track.

    TracePacket: trusted_packet_sequence_id = 10, sequence_flags = 13,
    trace_packet_defaults = 59 (track_event_defaults = 11, track_uuid = 11).
    """
    defaults = sized_field(59, sized_field(11, number_field(11, sequence)))
    file.write(
        _packet(descriptor + number_field(10, sequence) + number_field(13, _CLEARED) + defaults)
    )


def _descriptor(uuid: int, parent: int, content: bytes) -> bytes:
    """TracePacket: track_descriptor = 60; TrackDescriptor: uuid = 1, parent_uuid = 5."""
    return sized_field(
        60, number_field(1, uuid) + (number_field(5, parent) if parent else b"") + content
    )


class _Sequence:
    """
    Packets of a track: a begin and an end for each slice, sorted by time.

    TracePacket: timestamp = 8, track_event = 11, interned_data = 12. TrackEvent: type = 9,
    name_iid = 10, debug_annotations = 4, flow_ids = 47, terminating_flow_ids = 48 (fixed64).
    """

    def __init__(self, track: Track) -> None:
        self._track = track
        self._tail = number_field(10, track.id) + number_field(13, _NEEDS_STATE)
        self._end = sized_field(11, number_field(9, _END)) + self._tail
        self._names = _Interned(2)  # InternedData.event_names
        self._keys = _Interned(3)  # InternedData.debug_annotation_names
        self._texts = _Interned(29)  # InternedData.debug_annotation_string_values
        self._open: list[int] = []

    def packets(self) -> Iterator[bytes]:
        for slices in self._track.slices():
            yield b"".join(self._of(slices))
        yield b"".join(self._ended(None))

    def _of(self, slices: Slices) -> Iterator[bytes]:
        for place, (start, end) in enumerate(zip(slices.start_ps, slices.end_ps, strict=True)):
            yield from self._ended(end)
            event = (
                number_field(9, _BEGIN)
                + number_field(10, self._names.id(slices.names[place]))
                + self._annotations(slices.args[place])
            )
            if place in slices.starts or place in slices.ends:
                event += _flow_ids(47, slices.starts.get(place, ())) + _flow_ids(
                    48, slices.ends.get(place, ())
                )
            interned = self._names.added + self._keys.added + self._texts.added
            data = b""
            if interned:
                data = sized_field(12, interned)
                self._names.added = self._keys.added = self._texts.added = b""
            yield _packet(
                number_field(8, start // 1000) + sized_field(11, event) + data + self._tail
            )
            self._open.append(end)

    def _ended(self, end: int | None) -> Iterator[bytes]:
        """End the open slices that end before a time; all if it is None."""
        while self._open and (end is None or self._open[-1] < end):
            yield _packet(number_field(8, self._open.pop() // 1000) + self._end)

    def _annotations(self, args: Args) -> bytes:
        """
        Write arguments as annotations.

        DebugAnnotation: name_iid = 1, uint_value = 3, int_value = 4, double_value = 5,
        string_value_iid = 17.
        """
        return b"".join(
            sized_field(4, number_field(1, self._keys.id(name)) + self._value(value))
            for name, value in args.items()
        )

    def _value(self, value: float | str) -> bytes:
        if isinstance(value, str):
            return number_field(17, self._texts.id(value))
        if isinstance(value, float):
            return b"\x29" + struct.pack("<d", value)
        return number_field(3 if value >= 1 << 63 else 4, value)


class _Interned:
    """
    Texts of one index of InternedData, whose entries have iid = 1 and the text = 2.

    `added` holds the entries that no packet has yet.
    """

    def __init__(self, index: int) -> None:
        self._index = index
        self._ids: dict[str, int] = {}
        self.added = b""

    def id(self, text: str) -> int:
        """Return the id of a text."""
        found = self._ids.get(text)
        if found is None:
            found = self._ids[text] = len(self._ids) + 1
            self.added += sized_field(self._index, number_field(1, found) + text_field(2, text))
        return found


def _flow_ids(field: int, flows: Iterable[int]) -> bytes:
    return b"".join(varint(field << 3 | 1) + struct.pack("<Q", flow) for flow in flows)


def _samples(counter: Counter) -> Iterator[bytes]:
    """TrackEvent: type = 9, counter_value = 30."""
    tail = number_field(10, counter.id) + number_field(13, _NEEDS_STATE)
    for time, value in zip(counter.times_ps, counter.values, strict=True):
        yield _packet(
            number_field(8, time // 1000)
            + sized_field(11, number_field(9, _COUNTER) + number_field(30, value))
            + tail
        )


def _packet(content: bytes) -> bytes:
    """Trace: packet = 1."""
    return sized_field(1, content)
