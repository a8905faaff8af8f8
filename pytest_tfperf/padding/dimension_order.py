"""
Dimension orders of a step's arrays on a TPU, as far as convolutions determine them.

Batch and features of a convolution's data are its two fastest dimensions. The batch is the fastest
if the most common one is at least 64, else the features are (the performance guide of
cloud.google.com/tpu). Layouts belong to arrays, so the gradient of a kernel, whose HLO exchanges
batch and features, changes nothing. Parameters, results and all other arrays take the order that
needs the least memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import permutations

from pytest_tfperf.hlo.layout import padded_bytes
from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule, Shape
from pytest_tfperf.hlo.traversal import (
    ELEMENTWISE,
    ConvolutionData,
    bodies,
    convolution_data,
    is_convolution,
    is_identity,
    is_kernel_gradient,
)
from pytest_tfperf.padding.tpu import Generation

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
    """
    Return the order of a convolution's data.

    Args:
        rank: Number of dimensions.
        data: The array.
        batch: The most common batch of the step.
    """
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
    """
    Lay out an array in an order, with a TPU's tile; types of less than 8 bits are packed.

    Args:
        shape: The array.
        order: Its dimensions, the fastest first.
        generation: The TPU.
    """
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
