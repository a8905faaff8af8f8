"""Sizes that fill their tiles, close to given sizes."""

from __future__ import annotations

from dataclasses import replace

from pytest_tfperf.hlo.layout import logical_bytes, padded_bytes, padded_dimensions
from pytest_tfperf.hlo.module import Shape
from pytest_tfperf.padding.dimension_order import compact
from pytest_tfperf.padding.tpu import Generation
from pytest_tfperf.quantities import BYTES, format_quantity

_OVER = 8  # an excess over a multiple by at most an eighth of the step is rounded down


def good_size(size: int, step: int) -> int:
    """
    Return the multiple of a step to use for a size.

    Mostly this is the next larger one, which costs nothing more; for 50257 and 64 it is 50304.

    >>> good_size(100, 8), good_size(129, 128), good_size(1024, 128)
    (104, 128, 1024)
    """
    over = size % step
    return size - over if over * _OVER <= step <= size else size - over + step


def better_size(shape: Shape) -> str:
    """
    Suggest the change of one size to a multiple of its tile that saves most padding.

    Example: "100 → 104: saves 12.3 MiB". Among equal changes the smaller array wins. The text is
    empty if no size pads. The tile is fixed; a compiler may choose another one for other sizes.
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
    Suggest sizes that fill the tiles of a padded array, with the padding they save.

    Example: "100 → 128, 20 → 24: saves 12.3 MiB". If a generation is given, the larger array gets
    the layout that needs the least memory.
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
    """Write the sizes in which another array differs and its saving; empty if there is none."""
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
