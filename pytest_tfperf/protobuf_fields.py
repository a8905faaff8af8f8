"""
Encode fields in Protobuf's wire format.

Source: https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

_SIZED = 2  # wire type of what has a length; that of varints is 0


def number_field(field: int, value: int) -> bytes:
    """Return a field of an integer of at least 0, a boolean or an enumeration."""
    return varint(field << 3) + varint(value)


def text_field(field: int, text: str) -> bytes:
    """Return a field of a string."""
    return sized_field(field, text.encode("utf-8", "replace"))


def sized_field(field: int, content: bytes) -> bytes:
    """Return a field of bytes, or of a message that is encoded already."""
    return varint(field << 3 | _SIZED) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """Return a number of at least 0 in groups of 7 bits, the lowest first."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
