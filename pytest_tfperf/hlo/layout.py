"""
Tiled layouts of arrays: their text, and how many bytes an array takes in one.

The text is that of HLO, `f32[1024,10]{1,0:T(8,128)}`: dimensions, their order with the fastest first, and the tiles over the
fastest dimensions. Rules: openxla.org/xla/tiled_layout, and ShapeUtil::ArraySize in xla/shape_util.cc (openxla/xla).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

from pytest_tfperf.errors import LayoutError
from pytest_tfperf.hlo.module import DTYPES, Shape
from pytest_tfperf.metrics import nearest
from pytest_tfperf.text import elide

COMBINED = -(1 << 63)
"""A tile's `*`: the dimension is one with the next faster one (xla/layout.h, Tile::kCombineDimension)."""

_DEEPEST = 100  # as protobuf allows for
_HAS_NO_ELEMENTS = frozenset({"tuple", "opaque", "token", "buffer"})
_ARRAY = re.compile(r"(\w+)\[([^\]]*)\](?:\{([^{}]*)\})?")
_SIZE = re.compile(r"(<=)?(\d{1,18})")
_PROPERTY = re.compile(r"([A-Z]+|#|\*)((?:\([^()]*\))+)")
_IGNORED = frozenset(
    {"D", "M", "SC", "#", "*"}
)  # sparse levels, metadata, split tensors, types of pointers
_NUMBERS = {"L": "tail_alignment", "E": "element_bits", "S": "memory_space"}


def leaves(shape: Shape) -> Iterator[Shape]:
    """The arrays in a shape; of a tuple those of its parts, without its own table of pointers."""
    if shape.dtype not in _HAS_NO_ELEMENTS:
        yield shape
    for part in shape.parts:
        yield from leaves(part)


def padded_bytes(shape: Shape) -> int:
    """
    Bytes that the arrays of a shape take in their layouts.

    Only the first tile pads; further ones order the elements within it (XLA's ArraySize takes that for granted too).

    Raises:
        LayoutError: If the type is not known, or the layout fits no array of that rank.
    """
    return sum(-(-_padded_elements(leaf) * _stored_bits(leaf) // 8) for leaf in leaves(shape))


def logical_bytes(shape: Shape) -> int:
    """
    Bytes that the arrays of a shape hold. A type that the layout widens counts as narrow as it is, one that it packs as packed.

    A dynamic dimension counts with its bound.

    Raises:
        LayoutError: If the type is not known.
    """
    return sum(-(-leaf.elements * _needed_bits(leaf) // 8) for leaf in leaves(shape))


def physical_dimensions(shape: Shape) -> tuple[int, ...]:
    """
    The sizes of an array as they lie in memory, the fastest first; without a layout the last dimension is the fastest.

    Raises:
        LayoutError: If the layout is of another rank.
    """
    order = shape.minor_to_major or tuple(reversed(range(len(shape.dimensions))))
    if sorted(order) != list(range(len(shape.dimensions))):
        raise LayoutError(
            f"{shape_text(shape)}: {{{','.join(map(str, order))}}} does not order {len(shape.dimensions)} dimensions"
        )
    return tuple(shape.dimensions[number] for number in order)


def padded_dimensions(shape: Shape) -> tuple[int, ...]:
    """
    The sizes of an array as its tiles round them up, in the order of its dimensions; as they are where none is rounded.

    A tile over more dimensions than there are, or over combined ones, has no such sizes of its own and changes none.

    Raises:
        LayoutError: If the layout is of another rank.
    """
    sizes = list(physical_dimensions(shape))
    tile = tuple(reversed(shape.tiles[0])) if shape.tiles else ()
    if COMBINED not in tile:
        sizes = [_up(size, step) for size, step in zip(sizes, tile, strict=False)] + sizes[
            len(tile) :
        ]
    order = shape.minor_to_major or tuple(reversed(range(len(sizes))))
    return tuple(size for _, size in sorted(zip(order, sizes, strict=True)))


def parse_shape(text: str) -> Shape:
    """
    The shape that HLO text writes: `f32[1024,10]{1,0:T(8,128)}`, a dynamic bound `f32[<=100]`, tuples `(f32[], u8[4]{0})`.

    Raises:
        LayoutError: If it is none, of an unknown type, or if its layout fits no array of that rank.
    """
    plain = re.sub(r"/\*.*?\*/|\s", "", text)
    shape, end = _shape(plain, 0, text)
    if end != len(plain):
        raise LayoutError(f"{text!r}: {plain[end:]!r} follows the shape")
    return shape


def shape_text(shape: Shape) -> str:
    """An array's type and sizes, `f32[1024,10]`; of a tuple those of its parts."""
    if shape.dtype == "tuple":
        return f"({', '.join(map(shape_text, shape.parts))})"
    return f"{shape.dtype}[{','.join(map(str, shape.dimensions))}]"


def layout_text(shape: Shape) -> str:
    """An array's order and tiles as in HLO text, `{1,0:T(8,128)}`."""
    tiles = "".join(
        f"({','.join('*' if size == COMBINED else str(size) for size in tile)})"
        for tile in shape.tiles
    )
    order = shape.minor_to_major or tuple(reversed(range(len(shape.dimensions))))
    return f"{{{','.join(map(str, order))}{':T' if tiles else ''}{tiles}}}"


def _padded_elements(shape: Shape) -> int:
    sizes = physical_dimensions(shape)
    if shape.tiles:
        sizes = _tiled(sizes, shape.tiles[0], shape)
    return _up(prod(sizes), max(1, shape.tail_alignment))


def _tiled(sizes: tuple[int, ...], tile: tuple[int, ...], shape: Shape) -> tuple[int, ...]:
    """Sizes rounded up to a tile; both the fastest first, where the tile is written the other way round."""
    steps = tuple(reversed(tile))
    known = sizes + (1,) * (
        len(steps) - len(sizes)
    )  # an array of fewer dimensions than its tile lies in one of each
    found: list[int] = []
    for size, step in zip(known, steps, strict=False):
        if step == COMBINED and found:
            found[-1] *= size
            continue
        if step < 1:
            raise LayoutError(f"{shape_text(shape)}: {step} is no size of a tile")
        found.append(size)
    whole = [step for step in steps if step != COMBINED]
    return (
        *(_up(size, step) for size, step in zip(found, whole, strict=True)),
        *known[len(steps) :],
    )


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


def _bits(shape: Shape) -> int:
    if not shape.bits:
        raise LayoutError(
            f"{shape.dtype!r} is no element type; {nearest(shape.dtype, set(DTYPES.values()) - _HAS_NO_ELEMENTS)}"
        )
    return shape.bits


def _stored_bits(shape: Shape) -> int:
    return shape.element_bits or max(8, _bits(shape))


def _needed_bits(shape: Shape) -> int:
    return min(shape.element_bits, _bits(shape)) if shape.element_bits else _stored_bits(shape)


def _shape(text: str, begin: int, whole: str) -> tuple[Shape, int]:
    """The shape that begins there, and where it ends."""
    open_tuples: list[list[Shape]] = []
    place = begin
    while True:
        if text.startswith("(", place):
            open_tuples.append([])
            place += 1
            if len(open_tuples) > _DEEPEST:
                raise LayoutError(
                    f"{elide(whole, 40)!r}: more than {_DEEPEST} tuples within each other"
                )
            if not text.startswith(")", place):
                continue
            found = Shape("tuple", parts=tuple(open_tuples.pop()))
            place += 1
        else:
            match = _ARRAY.match(text, place)
            if match is None:
                raise LayoutError(
                    f"{whole!r}: no shape at {text[place : place + 20]!r}; one looks like f32[1024,10]{{1,0:T(8,128)}}"
                )
            found, place = _array(match, whole), match.end()
        while open_tuples:
            open_tuples[-1].append(found)
            if text.startswith(",", place):
                place += 1
                break
            if not text.startswith(")", place):
                raise LayoutError(f"{whole!r}: a tuple is not closed")
            found, place = Shape("tuple", parts=tuple(open_tuples.pop())), place + 1
        else:
            return found, place


def _array(match: re.Match[str], whole: str) -> Shape:
    dtype, sizes, layout = match.groups()
    bounds = [_SIZE.fullmatch(size) for size in sizes.split(",")] if sizes else []
    if dtype not in set(DTYPES.values()) - {"tuple"}:
        raise LayoutError(
            f"{whole!r}: {dtype!r} is no element type; {nearest(dtype, set(DTYPES.values()) - _HAS_NO_ELEMENTS)}"
        )
    known = [bound for bound in bounds if bound]
    if len(known) < len(bounds):
        raise LayoutError(
            f"{whole!r}: [{sizes}] are no sizes; a size is a number, or <= and its bound"
        )
    shape = Shape(
        dtype, tuple(int(bound[2]) for bound in known), tuple(bool(bound[1]) for bound in known)
    )
    order, _, properties = (layout or "").partition(":")
    found = _PROPERTY.findall(properties)
    if (
        "".join(map("".join, found)) != properties
        or not re.fullmatch(r"(\d+(,\d+)*)?", order)
        or len(order) > 999
    ):
        raise LayoutError(f"{whole!r}: {{{layout}}} is no layout; one looks like {{1,0:T(8,128)}}")
    shape = replace(shape, minor_to_major=tuple(map(int, order.split(","))) if order else ())
    physical_dimensions(shape)
    return replace(
        shape,
        **dict(_property(name, value, whole) for name, value in found if name not in _IGNORED),
    )


def _property(name: str, value: str, whole: str) -> tuple[str, Any]:
    """`T(8,128)(2,1)`, `L(16)`, `E(4)` or `S(1)` as the shape's field and its value."""
    groups = value[1:-1].split(")(")
    if name == "T" and all(
        re.fullmatch(r"(\*|[1-9]\d{0,17})(,(\*|[1-9]\d{0,17}))*", group) for group in groups
    ):
        if not groups[0].endswith("*"):
            return "tiles", tuple(
                tuple(COMBINED if size == "*" else int(size) for size in group.split(","))
                for group in groups
            )
    elif name in _NUMBERS and re.fullmatch(r"\d{1,18}", groups[0]) and len(groups) == 1:
        return _NUMBERS[name], int(groups[0])
    raise LayoutError(
        f"{whole!r}: {name}{value} is no part of a layout; it has T(8,128), L(16), E(4) or S(1)"
    )
