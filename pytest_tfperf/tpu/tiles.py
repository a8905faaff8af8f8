"""
Tiles of TPUs: the generations, dimension orders, sizes that fill tiles, and the arrays in memory.

Sources: jax, tpu_info.get_sublane_tiling (sublanes); openxla.org/xla/tiled_layout (small tiles);
the system architecture pages of cloud.google.com/tpu (widths of the matrix unit).

Batch and features of a convolution's data are its two fastest dimensions. The batch is the fastest
if the most common one is at least 64, else the features are (the performance guide of
cloud.google.com/tpu). Layouts belong to arrays, so the gradient of a kernel, whose HLO exchanges
batch and features, changes nothing. Parameters, results and all other arrays take the order that
needs the least memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

from pytest_tfperf.errors import LimitError
from pytest_tfperf.hlo.layout import logical_bytes, padded_bytes, padded_dimensions
from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule, Shape
from pytest_tfperf.hlo.walk import (
    ELEMENTWISE,
    ConvolutionData,
    bodies,
    convolution_data,
    is_convolution,
    is_identity,
    is_kernel_gradient,
)
from pytest_tfperf.metric_registry import nearest
from pytest_tfperf.quantities import BYTES, format_quantity

LANES, SUBLANES = 128, 8
_LONGEST_TILE = 1024
DEFAULT = "v5e"
_OVER = 8  # an excess over a multiple by at most an eighth of the step is rounded down
Order = tuple[int, ...]
"""An array's dimensions, the fastest first."""
LARGE_BATCH = 64
_SAME_DIMENSIONS = frozenset(
    [
        "concatenate",
        "dynamic-slice",
        "dynamic-update-slice",
        "pad",
        "reduce-window",
        "reverse",
        "select-and-scatter",
        "slice",
    ]
)
LARGEST_SKIPPED = 4096
"""Padded bytes of one tile of 32-bit elements; arrays of this size or less are ignored."""


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation of TPUs."""

    name: str
    least_rows: int
    """Fewest rows of a tile of 32-bit elements."""
    rows_of_16_bits: int
    """Most rows of a tile of 16-bit elements."""
    narrow_rows: bool
    """True if narrower elements have tiles of more than 8 rows."""
    matrix_width: int
    """Rows and columns of the matrix unit."""

    def tile(self, bits: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Return the first tile of an array."""
        packed = max(1, 32 // bits)  # an element of 64 bits takes two of 32
        least = self.least_rows * packed
        if len(sizes) < 2:
            return (
                min(_LONGEST_TILE, max(_power_of_two(sizes[0] if sizes else 1), least * LANES)),
            )
        return min(self._most_rows(bits), max(_power_of_two(sizes[1]), least)), LANES

    def _most_rows(self, bits: int) -> int:
        if bits == 16:
            return self.rows_of_16_bits
        return SUBLANES * 32 // bits if bits < 16 and self.narrow_rows else SUBLANES


_GENERATIONS = {
    found.name: found
    for found in (
        Generation("v2", 2, 8, False, 128),
        Generation("v3", 2, 8, False, 128),
        Generation("v4", 1, 8, True, 128),
        Generation("v5e", 1, 8, True, 128),
        Generation("v5p", 1, 8, True, 128),
        Generation("v6e", 1, 8, True, 256),
        Generation("v7x", 1, 16, True, 256),
    )
}


def generation(name: str) -> Generation:
    """Return the generation v2, v3, v4, v5e, v5p, v6e or v7x; another name raises LimitError."""
    if name not in _GENERATIONS:
        raise LimitError(f"{name!r} is not a TPU generation; {nearest(name, _GENERATIONS)}")
    return _GENERATIONS[name]


def _power_of_two(number: int) -> int:
    """Return the least power of two that is not below a number."""
    return 1 << max(0, number - 1).bit_length()


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


def common_batches(modules: Iterable[HloModule]) -> tuple[int, ...]:
    """
    Return the most common batch of the convolutions; equally common ones by size, largest first.

    XLA's choice among them is not documented.
    """
    counts = Counter(
        part.instructions[data.id].shape.dimensions[data.batch]
        for module in modules
        for part in bodies(module)
        for op in part.instructions.values()
        if is_convolution(op)
        for data in convolution_data(op)[:1]
    )
    return tuple(
        sorted((batch for batch, n in counts.items() if n == max(counts.values())), reverse=True)
    )


def convolution_order(rank: int, data: ConvolutionData, batch: int) -> Order:
    """Return the order of a convolution's data, given the most common batch of the step."""
    fastest = (data.batch, data.feature) if batch >= LARGE_BATCH else (data.feature, data.batch)
    return *fastest, *(number for number in reversed(range(rank)) if number not in fastest)


def convolution_orders(part: HloComputation, batch: int) -> dict[int, Order]:
    """
    Return the orders of convolutions' data and of the arrays around them, by instruction.

    Elementwise ops, pooling, slices and concatenations have the order of their operand. Reductions
    keep the order of the remaining dimensions.
    """
    found: dict[int, Order] = {}
    for op in reversed(part.instructions.values()):
        if is_convolution(op):
            for data in convolution_data(op):
                order = convolution_order(
                    len(part.instructions[data.id].shape.dimensions), data, batch
                )
                found[data.id] = order if data.id == op.id else found.get(data.id, order)
        elif op.id in found:
            for operand in _alike(op, part):
                found.setdefault(operand.id, found[op.id])
    for op in part.instructions.values():
        if op.id not in found and (inherited := _inherited(op, part, found)) is not None:
            found[op.id] = inherited
    return found


def kernels(part: HloComputation) -> frozenset[int]:
    """Return the kernels of convolutions, their gradients, and their sources of the same size."""
    found: set[int] = set()
    for op in reversed(part.instructions.values()):
        if is_convolution(op):
            found.add(op.id if is_kernel_gradient(op) else op.operands[1])
        elif op.id in found and (
            op.opcode == "reverse" or op.opcode in ELEMENTWISE or is_identity(op, part)
        ):
            found.update(
                operand.id
                for operand in part.operands(op)
                if operand.shape.dimensions == op.shape.dimensions
            )
    return frozenset(found)


def compact(shape: Shape, generation: Generation) -> Shape:
    """
    Lay out an array in the order that needs the least memory, among equal ones the closest to its
    own.
    """
    rank = len(shape.dimensions)
    pairs: Sequence[Order] = (
        list(permutations(reversed(range(rank)), 2)) if rank > 1 else [tuple(range(rank))]
    )
    orders = (
        (*pair, *(number for number in reversed(range(rank)) if number not in pair))
        for pair in pairs
    )
    return min((tiled(shape, order, generation) for order in orders), key=padded_bytes)


def row_major(shape: Shape, generation: Generation) -> Shape:
    """Lay out an array with its last dimension the fastest."""
    return tiled(shape, tuple(reversed(range(len(shape.dimensions)))), generation)


def swapped_rows(shape: Shape, generation: Generation) -> Shape:
    """Lay out an array with its second-last dimension the fastest, then the last."""
    *major, second, last = range(len(shape.dimensions))
    return tiled(shape, (second, last, *reversed(major)), generation)


def tiled(shape: Shape, order: Order, generation: Generation) -> Shape:
    """Lay out an array in an order, with a TPU's tile; types of less than 8 bits are packed."""
    bits = shape.element_bits or shape.bits
    tile = generation.tile(max(1, bits), tuple(shape.dimensions[number] for number in order))
    return replace(
        shape,
        minor_to_major=order,
        tiles=(tile,),
        element_bits=shape.bits if shape.bits < 8 else shape.element_bits,
    )


def _alike(op: HloInstruction, part: HloComputation) -> list[HloInstruction]:
    """Return the operands that have the order of an instruction's result."""
    operands = part.operands(op)
    if op.opcode in ELEMENTWISE or is_identity(op, part):
        return [operand for operand in operands if operand.shape.dimensions == op.shape.dimensions]
    if op.opcode not in _SAME_DIMENSIONS:
        return []
    return [
        operand
        for operand in operands
        if len(operand.shape.dimensions) == len(op.shape.dimensions) > 0
    ]


def _inherited(op: HloInstruction, part: HloComputation, found: dict[int, Order]) -> Order | None:
    if op.opcode == "reduce" and op.operands and op.operands[0] in found:
        kept = [
            n
            for n in range(len(part.instructions[op.operands[0]].shape.dimensions))
            if n not in op.dimensions
        ]
        return tuple(kept.index(number) for number in found[op.operands[0]] if number in kept)
    return next((found[operand.id] for operand in _alike(op, part) if operand.id in found), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """One array."""

    name: str
    what: str
    """The opcode and the op that made it."""
    shape: str
    """Its shape with its layout."""
    padded_shape: str
    """Its shape rounded up to its tiles."""
    logical_bytes: int
    """Bytes of its data."""
    padded_bytes: int
    """Bytes in the likely layout."""
    upper_bytes: int
    """Bytes in the largest possible layout."""
    lower_bytes: int | None = None
    """Bytes in the smallest possible layout; None if they equal `padded_bytes`."""
    line: str | None = None
    """The user's source line."""
    advice: str = ""

    @property
    def waste(self) -> int:
        """Bytes of padding."""
        return self.padded_bytes - self.logical_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """The arrays of a step."""

    buffers: tuple[Buffer, ...]
    """The arrays that count."""
    source: str
    """`measured`, `estimated` or `predicted`."""
    generation: str
    notes: tuple[str, ...] = field(default=())

    @property
    def logical_bytes(self) -> int:
        """Bytes of all arrays without padding."""
        return sum(buffer.logical_bytes for buffer in self.buffers)

    @property
    def overhead(self) -> float | None:
        """Padded ÷ logical bytes − 1; None if there are no arrays."""
        return self._overhead(sum(buffer.padded_bytes for buffer in self.buffers))

    @property
    def low(self) -> float | None:
        """Lower bound of `overhead`."""
        sizes = [
            buffer.padded_bytes if buffer.lower_bytes is None else buffer.lower_bytes
            for buffer in self.buffers
        ]
        return self._overhead(sum(sizes))

    @property
    def high(self) -> float | None:
        """Upper bound of `overhead`."""
        return self._overhead(sum(buffer.upper_bytes for buffer in self.buffers))

    def worst(self, number: int = 5) -> tuple[Buffer, ...]:
        """Return the arrays that waste most bytes."""
        return tuple(
            sorted(
                (one for one in self.buffers if one.waste), key=lambda one: (-one.waste, one.name)
            )[:number]
        )

    def _overhead(self, padded: int) -> float | None:
        return padded / self.logical_bytes - 1 if self.logical_bytes else None
