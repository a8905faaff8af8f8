"""
Tiled layouts of arrays: their text, and the bytes an array takes in one.

The text is that of HLO, `f32[1024,10]{1,0:T(8,128)}`: dimensions, their order with the fastest
first, and the tiles over the fastest dimensions. Sources: openxla.org/xla/tiled_layout, and
ShapeUtil::ArraySize in xla/shape_util.cc (openxla/xla).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

from pytest_tfperf.errors import LayoutError
from pytest_tfperf.hlo.module import DTYPES, Shape
from pytest_tfperf.metric_registry import nearest
from pytest_tfperf.text import elide

COMBINED = -(1 << 63)
"""A tile's `*`, which combines a dimension with the next faster one.

Source: Tile::kCombineDimension (xla/layout.h).
"""

_TYPES = frozenset(DTYPES.values()) - {"tuple"}
_DEEPEST = 100  # nested tuples; protobuf's own limit
_HAS_NO_ELEMENTS = frozenset({"tuple", "opaque", "token", "buffer"})
_MOST_DIMENSIONS = 64  # orders of dimensions are searched, and no model has more than ten
_ARRAY = re.compile(r"(\w+)\[([^\]]*)\](?:\{([^{}]*)\})?")
_SIZE = re.compile(r"(<=)?(\d{1,18})")
_PROPERTY = re.compile(r"([A-Z]+|#|\*)((?:\([^()]*\))+)")
_IGNORED = frozenset(
    {"D", "M", "SC", "#", "*"}
)  # sparse levels, metadata, split tensors, types of pointers
_NUMBERS = {"L": "tail_alignment", "E": "element_bits", "S": "memory_space"}


def leaves(shape: Shape) -> Iterator[Shape]:
    """Yield the arrays in a shape; a tuple's own table of pointers is left out."""
    if shape.dtype not in _HAS_NO_ELEMENTS:
        yield shape
    for part in shape.parts:
        yield from leaves(part)


def padded_bytes(shape: Shape) -> int:
    """
    Count the bytes that the arrays of a shape take in their layouts.

    Only the first tile pads; further ones order the elements within it, as XLA's ArraySize assumes.
    Raises LayoutError if the type is unknown, or the layout does not fit the array's rank.
    """
    return sum(-(-_padded_elements(leaf) * _stored_bits(leaf) // 8) for leaf in leaves(shape))


def logical_bytes(shape: Shape) -> int:
    """
    Count the bytes that the arrays of a shape hold; LayoutError if a type is unknown.

    A type that the layout widens counts with its own bits, a packed one as packed. A dynamic
    dimension counts with its bound.
    """
    return sum(-(-leaf.elements * _needed_bits(leaf) // 8) for leaf in leaves(shape))


def physical_dimensions(shape: Shape) -> tuple[int, ...]:
    """
    Return an array's sizes in memory order, the fastest first.

    Without a layout the last dimension is the fastest. Raises LayoutError if it has another rank.
    """
    order = shape.minor_to_major or tuple(reversed(range(len(shape.dimensions))))
    if sorted(order) != list(range(len(shape.dimensions))):
        raise LayoutError(
            f"{shape_text(shape)}: {{{','.join(map(str, order))}}} is not an order of"
            f" {len(shape.dimensions)} dimensions"
        )
    return tuple(shape.dimensions[number] for number in order)


def padded_dimensions(shape: Shape) -> tuple[int, ...]:
    """
    Return an array's sizes rounded up to its tiles, in the order of its dimensions.

    A tile over more dimensions than the array has, or over combined ones, changes no size.
    """
    sizes = list(physical_dimensions(shape))
    tile = tuple(reversed(shape.tiles[0])) if shape.tiles else ()
    if COMBINED not in tile:
        sizes = [rounded_up(size, step) for size, step in zip(sizes, tile, strict=False)] + sizes[
            len(tile) :
        ]
    order = shape.minor_to_major or tuple(reversed(range(len(sizes))))
    return tuple(size for _, size in sorted(zip(order, sizes, strict=True)))


def parse_shape(text: str) -> Shape:
    """
    Read a shape from HLO text; LayoutError if that is none, or its layout does not fit its rank.

    Examples are `f32[1024,10]{1,0:T(8,128)}`, a dynamic bound `f32[<=100]`, and a tuple `(f32[],
    u8[4]{0})`.
    """
    plain = re.sub(r"/\*.*?\*/|\s", "", text)
    shape, end = _shape(plain, 0, text)
    if end != len(plain):
        raise LayoutError(f"{text!r}: {plain[end:]!r} follows the shape")
    return shape


def shape_text(shape: Shape) -> str:
    """Write an array's type and sizes, `f32[1024,10]`, or those of a tuple's parts."""
    if shape.dtype == "tuple":
        return f"({', '.join(map(shape_text, shape.parts))})"
    return f"{shape.dtype}[{','.join(map(str, shape.dimensions))}]"


def layout_text(shape: Shape) -> str:
    """Write an array's order and tiles as in HLO text, `{1,0:T(8,128)}`."""
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
    return rounded_up(prod(sizes), max(1, shape.tail_alignment))


def _tiled(sizes: tuple[int, ...], tile: tuple[int, ...], shape: Shape) -> tuple[int, ...]:
    """Round sizes, the fastest first, up to a tile, which is written the other way round."""
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
            raise LayoutError(f"{shape_text(shape)}: {step} is not the size of a tile")
        found.append(size)
    whole = [step for step in steps if step != COMBINED]
    return (
        *(rounded_up(size, step) for size, step in zip(found, whole, strict=True)),
        *known[len(steps) :],
    )


def rounded_up(size: int, step: int) -> int:
    """Return the next multiple of a step from a size on."""
    return -(-size // step) * step


def _bits(shape: Shape) -> int:
    if not shape.bits:
        raise LayoutError(_not_a_type(shape.dtype))
    return shape.bits


def _not_a_type(dtype: str) -> str:
    known = set(DTYPES.values()) - _HAS_NO_ELEMENTS
    return f"{dtype!r} is not an element type; {nearest(dtype, known)}"


def _stored_bits(shape: Shape) -> int:
    return shape.element_bits or max(8, _bits(shape))


def _needed_bits(shape: Shape) -> int:
    return min(shape.element_bits, _bits(shape)) if shape.element_bits else _stored_bits(shape)


def _shape(text: str, begin: int, whole: str) -> tuple[Shape, int]:
    """Read the shape that begins at an offset."""
    open_tuples: list[list[Shape]] = []
    place = begin
    while True:
        if text.startswith("(", place):
            open_tuples.append([])
            place += 1
            if len(open_tuples) > _DEEPEST:
                raise LayoutError(f"{elide(whole, 40)!r}: more than {_DEEPEST} nested tuples")
            if not text.startswith(")", place):
                continue
            found = Shape("tuple", parts=tuple(open_tuples.pop()))
            place += 1
        else:
            match = _ARRAY.match(text, place)
            if match is None:
                raise LayoutError(
                    f"{elide(whole, 80)!r}: no shape at {text[place : place + 20]!r}; a shape"
                    " looks like f32[1024,10]{1,0:T(8,128)}"
                )
            found, place = _array(match, whole), match.end()
        while open_tuples:
            open_tuples[-1].append(found)
            if text.startswith(",", place):
                place += 1
                break
            if not text.startswith(")", place):
                raise LayoutError(f"{elide(whole, 80)!r}: a tuple is not closed")
            found, place = Shape("tuple", parts=tuple(open_tuples.pop())), place + 1
        else:
            return found, place


def _array(match: re.Match[str], whole: str) -> Shape:
    dtype, sizes, layout = match.groups()
    if sizes.count(",") >= _MOST_DIMENSIONS:
        raise LayoutError(f"{elide(whole, 40)!r}: more than {_MOST_DIMENSIONS} dimensions")
    bounds = [_SIZE.fullmatch(size) for size in sizes.split(",")] if sizes else []
    if dtype not in _TYPES:
        raise LayoutError(f"{elide(whole, 80)!r}: {_not_a_type(elide(dtype, 40))}")
    known = [bound for bound in bounds if bound]
    if len(known) < len(bounds):
        raise LayoutError(
            f"{elide(whole, 80)!r}: [{elide(sizes, 80)}] are not sizes; a size is a number, or <="
            " and a bound"
        )
    shape = Shape(
        dtype, tuple(int(bound[2]) for bound in known), tuple(bool(bound[1]) for bound in known)
    )
    if not layout:
        return shape
    order, _, properties = layout.partition(":")
    found = _PROPERTY.findall(properties)
    if (
        "".join(map("".join, found)) != properties
        or not re.fullmatch(r"(\d+(,\d+)*)?", order)
        or len(order) > 999
    ):
        raise LayoutError(
            f"{elide(whole, 80)!r}: {{{elide(layout, 80)}}} is not a layout; one is"
            " {1,0:T(8,128)}"
        )
    shape = replace(shape, minor_to_major=tuple(map(int, order.split(","))) if order else ())
    physical_dimensions(shape)
    return replace(
        shape,
        **dict(_property(name, value, whole) for name, value in found if name not in _IGNORED),
    )


def _property(name: str, value: str, whole: str) -> tuple[str, Any]:
    """Read `T(8,128)(2,1)`, `L(16)`, `E(4)` or `S(1)` as the shape's field and its value."""
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
        f"{whole!r}: {name}{value} is not part of a layout; parts are T(8,128), L(16), E(4), S(1)"
    )
