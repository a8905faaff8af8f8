"""Sizes that fill their tiles, close to those that do not."""

from __future__ import annotations

from dataclasses import replace

from pytest_tfperf.metrics import BYTES, format_quantity
from pytest_tfperf.padding.tiling import logical_bytes, padded_bytes
from pytest_tfperf.trace.hlo_module import Shape

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

    Empty where no size pads. The tile is taken as it is; a compiler may choose another one for other sizes.
    """
    now = padded_bytes(shape) - logical_bytes(shape)
    order = shape.minor_to_major or tuple(reversed(range(len(shape.dimensions))))
    steps = zip(order, reversed(shape.tiles[0] if shape.tiles else ()), strict=False)
    best = max((_spared(shape, number, step, now) for number, step in steps if step > 1), default=(0, ""))
    return best[1] if best[0] > 0 else ""


def _spared(shape: Shape, number: int, step: int, now: int) -> tuple[int, str]:
    """Bytes of padding that one size's nearest multiple of a step spares, and that change in words."""
    size = shape.dimensions[number]
    good = good_size(size, step)
    sizes = (*shape.dimensions[:number], good, *shape.dimensions[number + 1 :])
    changed = replace(shape, dimensions=sizes)
    spared = now - (padded_bytes(changed) - logical_bytes(changed))
    return spared, f"{size:,} → {good:,}: saves {format_quantity(spared, BYTES)}"
