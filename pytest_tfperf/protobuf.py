"""
Protobuf's wire format, without schemas.

Source: https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap

import numpy as np
import numpy.typing as npt

from pytest_tfperf.errors import TraceError

Buffer = bytes | bytearray | memoryview | mmap
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types
_CHUNK = 1 << 18  # bytes to search at once, as many as fit a processor's cache
PADDING = 16
"""Bytes behind a message, so that eight bytes can be read at any offset."""


_JOINS = tuple(
    (np.uint64(mask), np.uint64(shift))
    for mask, shift in ((0x7F007F007F007F00, 1), (0x3FFF00003FFF0000, 2), (0x0FFFFFFF00000000, 4))
)
"""The upper one of two groups of bits, and the distance to the lower one, from 7 bits on."""
_EACH_BYTE = np.uint64(0x0101010101010101)


def _join(word: Words, last: np.uint64) -> tuple[Ints, Ints]:
    """
    Turn words, in place, into the varints at their lower ends; return lengths, and the long places.

    `last` has the bits that are 0 in the last byte of a varint, for each byte to look at.
    """
    stop = ~word
    stop &= last
    long = np.flatnonzero(stop == 0)
    used = stop - np.uint64(1)  # with the bits below the lowest set one, and none of the others
    np.invert(stop, out=stop)
    used &= stop
    word &= used
    word &= np.uint64(0x7F7F7F7F7F7F7F7F)
    for mask, shift in _JOINS:
        upper = word & mask
        word -= upper
        upper >>= shift
        word += upper
    used &= _EACH_BYTE
    used *= _EACH_BYTE  # the sum of all bytes is in the highest one
    used >>= np.uint64(56)
    return used.view(np.int64), long


class Message:
    """
    Protobuf bytes with checked access, one field at a time or many varints at once.

    `where` is the type of a message, for error messages.
    """

    __slots__ = ("_buffer", "bytes", "path", "size", "words")

    def __init__(self, raw: Buffer, path: str, size: int | None = None) -> None:
        """
        Look at some bytes, which are copied unless their `size` is given.

        Then `PADDING` readable bytes are behind: in `raw`, or in the last page of a mapped file.
        """
        self.size = len(raw) if size is None else size
        self.path = path
        self._buffer = raw if size is not None else bytes(raw) + bytes(PADDING)
        found = np.frombuffer(self._buffer, np.uint8)
        # of a mapped file NumPy knows only the bytes before its end
        self.bytes = np.lib.stride_tricks.as_strided(found, (self.size + PADDING,), writeable=False)
        self.words: Words = np.lib.stride_tricks.as_strided(
            found[:8].view("<u8"), (self.size + PADDING - 7,), (1,), writeable=False
        )

    def fields(self, begin: int, end: int, where: str) -> Iterator[tuple[int, int, int, int]]:
        """
        Yield number, wire type, value or begin of payload, and end of each field in `begin:end`.
        """
        at = begin
        while at < end:
            tag, at = self.varint(at, end, where)
            number, wire = tag >> 3, tag & 7
            if number == 0:
                raise self.error(where, at, "field number 0")
            if wire == VARINT:
                value, at = self.varint(at, end, where)
                yield number, wire, value, at
                continue
            if wire == BYTES:
                length, at = self.varint(at, end, where)
            elif wire in (FIXED64, FIXED32):
                length = 8 if wire == FIXED64 else 4
            else:
                raise self.error(where, at, f"wire type {wire} of field {number} is not in use")
            if length > end - at:
                raise self.error(
                    where, at, f"field {number} needs {length} bytes, {end - at} are left"
                )
            yield number, wire, at, at + length
            at += length

    def consecutive(self, at: int, end: int) -> tuple[list[int], list[int], int]:
        """
        Find the payloads of the fields from an offset on that have the tag there, of one byte.

        Return their begins and ends, and the offset behind the last one. A payload that is longer
        than the message ends the search; it is left out.
        """
        begins, ends, tag = [], [], self._buffer[at]
        while at < end and self._buffer[at] == tag:
            size, begin = self.varint(at + 1, self.size, "message")
            if size > end - begin:
                break
            at = begin + size
            begins.append(begin)
            ends.append(at)
        return begins, ends, at

    def varint(self, at: int, end: int, where: str) -> tuple[int, int]:
        """Read the varint at an offset, and return it with the offset behind it."""
        if at < end and (byte := self._buffer[at]) < 0x80:  # most are that short
            return byte, at + 1
        value = shift = 0
        for place in range(at, min(at + 10, end)):
            byte = self._buffer[place]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF, place + 1
            shift += 7
        raise self.error(where, at, "a varint does not end")

    def text(self, begin: int, end: int) -> str:
        """
        Return the string in `begin:end`; bytes that are not UTF-8 become replacement characters.
        """
        return bytes(self._buffer[begin:end]).decode("utf-8", "replace")

    def find(self, pattern: bytes, begin: int, end: int) -> Ints:
        """Find all offsets of a pattern within `begin:end`, overlaps included."""
        found = []
        for start in range(begin, end, _CHUNK):
            stop = max(min(start + _CHUNK, end - len(pattern) + 1), start)
            matches = self.bytes[start:stop] == pattern[0]
            for place, byte in enumerate(pattern[1:], 1):
                matches &= self.bytes[start + place : stop + place] == byte
            found.append(np.flatnonzero(matches) + start)
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def slice(self, begin: int, end: int) -> bytes:
        """Return the bytes in `begin:end`."""
        return bytes(self._buffer[begin:end])

    def varints(self, at: Ints) -> tuple[Words, Ints]:
        """
        Read the varints at many offsets; return their values and lengths, both of shape (n,).

        Most of some columns have one byte. Of others eight bytes are read at once, and three shifts
        join the groups of seven bits. Longer varints have one or two bytes more.
        """
        first = self.bytes[at]
        wide = np.flatnonzero(first & np.uint8(0x80))
        if 2 * wide.size > at.size:
            return self._wide_varints(at)
        value: Words = first.astype(np.uint64)
        length = np.ones(at.size, np.int64)
        if wide.size:
            value[wide], length[wide] = self._wide_varints(at[wide])
        return value, length

    def varint_fields(self, at: Ints, tag: int) -> tuple[Words, Ints]:
        """
        Read varints behind a tag of one byte at many offsets, shape (n,), and the fields' lengths.

        Both are 0 where the tag is another.
        """
        word = self.words[at]
        present = (word & np.uint64(0xFF)) == np.uint64(tag)
        word >>= np.uint64(8)
        length, long = _join(word, np.uint64(0x0080808080808080))
        length += 1
        if not present.all():
            word *= present
            length *= present
            long = long[present[long]]
        if long.size:
            word[long], width = self.varints(at[long] + 1)
            length[long] = width + 1
        return word, length

    def _wide_varints(self, at: Ints) -> tuple[Words, Ints]:
        """Read varints of any length as `varints` does."""
        word = self.words[at]
        length, long = _join(word, np.uint64(0x8080808080808080))
        if long.size:
            word[long], length[long] = self._long_varints(at[long], word[long])
        return word, length

    def _long_varints(self, at: Ints, low: Words) -> tuple[Words, Ints]:
        """Read varints of nine or ten bytes; `low` has the lowest 56 of their bits."""
        ninth, tenth = self.bytes[at + 8], self.bytes[at + 9]
        endless = (ninth >= 0x80) & (tenth >= 0x80)
        if endless.any():
            raise self.error("varint", int(at[endless][0]), "a varint does not end")
        more = np.where(ninth >= 0x80, tenth & np.uint8(1), np.uint8(0)).astype(
            np.uint64
        ) << np.uint64(63)
        return low | (ninth & np.uint8(0x7F)).astype(np.uint64) << np.uint64(56) | more, np.where(
            ninth >= 0x80, 10, 9
        )

    def signed(self, value: int) -> int:
        """Convert a varint to an int64; negative numbers are stored as two's complement."""
        return value - (1 << 64) if value >> 63 else value

    def error(self, where: str, at: int, what: str) -> TraceError:
        """Make a TraceError that names the type of the message, offset and file."""
        return TraceError(
            f"{self.path} is not an XSpace trace (.xplane.pb), or it is damaged "
            f"({where} at byte {at} of {self.size}: {what})"
        )


class Record:
    """The fields of one message by number, of which the last one counts where one is asked for."""

    __slots__ = ("_begin", "_found", "_message", "_where")

    def __init__(self, message: Message, begin: int, end: int, where: str) -> None:
        self._message, self._begin, self._where = message, begin, where
        self._found: dict[int, list[tuple[int, int, int]]] = {}
        for number, wire, value, behind in message.fields(begin, end, where):
            self._found.setdefault(number, []).append((wire, value, behind))

    def __contains__(self, number: int) -> bool:
        return number in self._found

    def integer(self, number: int, default: int = 0) -> int:
        """Return a number, the default if there is none."""
        values = [value for wire, value, _ in self._found.get(number, ()) if wire == VARINT]
        return self._message.signed(values[-1]) if values else default

    def integers(self, number: int) -> tuple[int, ...]:
        """Return the values of a repeated number, packed or not."""
        values: list[int] = []
        for wire, value, behind in self._found.get(number, ()):
            if wire == VARINT:
                values.append(self._message.signed(value))
            while wire == BYTES and value < behind:
                item, value = self._message.varint(value, behind, self._where)
                values.append(self._message.signed(item))
        return tuple(values)

    def spans(self, number: int) -> list[tuple[int, int]]:
        """Return begin and end of each length-delimited field of a number."""
        return [
            (value, behind) for wire, value, behind in self._found.get(number, ()) if wire == BYTES
        ]

    def text(self, number: int) -> str:
        """Return a string, empty if there is none."""
        spans = self.spans(number)
        return self._message.text(*spans[-1]) if spans else ""

    def record(self, number: int, where: str) -> Record:
        """Return a message of type `where`, without fields if there is none."""
        return Record(self._message, *[(0, 0), *self.spans(number)][-1], where)

    def records(self, number: int, where: str) -> Iterator[Record]:
        """Yield each message of a repeated field, of type `where`."""
        for span in self.spans(number):
            yield Record(self._message, *span, where)

    def error(self, what: str) -> TraceError:
        """Make a TraceError that names the type and the offset of this message."""
        return self._message.error(self._where, self._begin, what)


def number_field(field: int, value: int) -> bytes:
    """Return a field of an integer of at least 0, a boolean or an enumeration."""
    return varint(field << 3) + varint(value)


def text_field(field: int, text: str) -> bytes:
    """Return a field of a string."""
    return sized_field(field, text.encode("utf-8", "replace"))


def sized_field(field: int, content: bytes) -> bytes:
    """Return a field of bytes, or of a message that is encoded already."""
    return varint(field << 3 | BYTES) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """Return a number of at least 0 in groups of 7 bits, the lowest first."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
