"""
Encode fields in Protobuf's wire format.

Source: https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

_SIZED = 2  # wire type of what has a length; that of varints is 0
_ALL_BITS = (1 << 64) - 1  # negative numbers are in two's complement
_SHORT = [bytes([value]) for value in range(0x80)]


def number_field(field: int, value: int) -> bytes:
    """Return a field of an integer, a boolean or an enumeration."""
    return (_SHORT[field << 3] if field < 16 else varint(field << 3)) + varint(value & _ALL_BITS)


def text_field(field: int, text: str) -> bytes:
    """Return a field of a string."""
    return sized_field(field, text.encode("utf-8", "replace"))


def sized_field(field: int, content: bytes) -> bytes:
    """Return a field of bytes, or of a message that is encoded already."""
    return varint(field << 3 | _SIZED) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """Return a number of at least 0 in groups of 7 bits, the lowest first."""
    if value < 0x80:
        return _SHORT[value]
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
