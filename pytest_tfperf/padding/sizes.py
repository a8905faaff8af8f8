"""Sizes that fill their tiles, close to those that do not."""

from __future__ import annotations

from dataclasses import replace

from pytest_tfperf.hlo.layout import logical_bytes, padded_bytes, padded_dimensions
from pytest_tfperf.hlo.module import Shape
from pytest_tfperf.metrics import BYTES, format_quantity
from pytest_tfperf.padding.dimension_order import compact
from pytest_tfperf.padding.tpu import Generation

_OVER = 8  # what is over a multiple by no more than an eighth of the step is better left away


def good_size(size: int, step: int) -> int:
    """
    The multiple of a step that a size had better be: mostly the next larger, which costs nothing more; 50257 of 64 is 50304.

    >>> good_size(100, 8), good_size(129, 128), good_size(1024, 128)
    (104, 128, 1024)
    """
    over = size % step
    return size - over if over * _OVER <= step <= size else size - over + step


def better_size(shape: Shape) -> str:
    """
    The one change of a size to the nearest multiple of its tile that spares most padding: "100 → 104: saves 12.3 MiB".

    Of changes that spare as much it is the one to the smaller array. Empty where no size pads. The tile is taken as it is; a compiler
    may choose another one for other sizes.
    """
    order = shape.minor_to_major or tuple(reversed(range(len(shape.dimensions))))
    steps = zip(order, reversed(shape.tiles[0] if shape.tiles else ()), strict=False)
    changed = [
        _with(shape, number, good_size(shape.dimensions[number], step))
        for number, step in steps
        if step > 1
    ]
    return _saving(
        shape, min(changed, key=lambda other: (_padding(other), padded_bytes(other)), default=shape)
    )


def filling_sizes(shape: Shape, generation: Generation | None) -> str:
    """
    Sizes that fill the tiles of a padded array, and the bytes of padding that they save: "100 → 128, 20 → 24: saves 12.3 MiB".

    With a generation the larger array is laid out anew, as it needs the least memory.
    """
    larger = replace(shape, dimensions=padded_dimensions(shape))
    return _saving(shape, compact(larger, generation) if generation else larger)


def _with(shape: Shape, number: int, size: int) -> Shape:
    return replace(
        shape, dimensions=(*shape.dimensions[:number], size, *shape.dimensions[number + 1 :])
    )


def _padding(shape: Shape) -> int:
    return padded_bytes(shape) - logical_bytes(shape)


def _saving(shape: Shape, other: Shape) -> str:
    """The sizes in which another array differs and the bytes of padding that it spares; empty if there are none."""
    spared = _padding(shape) - _padding(other)
    changes = [
        f"{old:,} → {new:,}"
        for old, new in zip(shape.dimensions, other.dimensions, strict=True)
        if old != new
    ]
    return (
        f"{', '.join(changes)}: saves {format_quantity(spared, BYTES)}"
        if changes and spared > 0
        else ""
    )
