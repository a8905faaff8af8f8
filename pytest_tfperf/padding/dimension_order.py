"""
Which dimensions of a step's arrays lie next to each other on a TPU, as far as convolutions decide it.

Batch and features of what a convolution reads and writes are its two fastest dimensions: the batch the fastest where the most
common one is at least 64, else the features (the performance guide of cloud.google.com/tpu). Layouts are an array's, so the
gradient of a kernel, whose HLO names batch and features the other way round, changes nothing. Parameters, results and all else
lie as they need the least memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from pytest_tfperf.graphs import reached
from pytest_tfperf.hlo.layout import padded_bytes
from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule, Shape
from pytest_tfperf.padding.tpu import Generation

Order = tuple[int, ...]
"""An array's dimensions, the fastest first."""

LARGE_BATCH = 64
ELEMENTWISE = frozenset([
    "abs", "add", "and", "atan2", "bitcast", "bitcast-convert", "cbrt", "ceil", "clamp", "compare", "complex", "convert", "copy", "cosine",
    "divide", "erf", "exponential", "exponential-minus-one", "floor", "imag", "is-finite", "log", "log-plus-one", "logistic", "maximum",
    "minimum", "multiply", "negate", "not", "opt-barrier", "or", "popcnt", "power", "real", "reduce-precision", "remainder",
    "round-nearest-afz", "round-nearest-even", "rsqrt", "select", "shift-left", "shift-right-arithmetic", "shift-right-logical", "sign",
    "sine", "sqrt", "stochastic-convert", "subtract", "tan", "tanh", "xor",
])  # fmt: skip
_SAME_DIMENSIONS = frozenset([
    "concatenate", "dynamic-slice", "dynamic-update-slice", "pad", "reduce-window", "reverse", "select-and-scatter", "slice",
])  # fmt: skip
BODIES = frozenset({"while", "call", "conditional", "async-start"})


@dataclass(frozen=True, slots=True)
class Data:
    """An array that a convolution reads or writes, with the dimensions that are its examples and its features."""

    id: int
    batch: int
    feature: int


def bodies(module: HloModule, callers: Collection[str] = BODIES) -> list[HloComputation]:
    """The entry and what instructions of these kinds call, once: the bodies of loops and branches, and functions."""

    def called_by(key: int) -> list[int]:
        return [called for op in module.computations[key].instructions.values() if op.opcode in callers for called in op.called]

    return [module.computations[key] for key in reached([module.entry_id], called_by)]


def is_convolution(op: HloInstruction) -> bool:
    """Whether it moves a window; a convolution without one is a matrix multiplication."""
    return op.opcode == "convolution" and op.convolution is not None and bool(op.convolution.input_spatial)


def is_kernel_gradient(op: HloInstruction) -> bool:
    """Whether a convolution gives the gradient of a kernel: by the op that made it, else by its examples being the features of HLO."""
    dims = op.convolution
    return dims is not None and ("BackpropFilter" in op.op_type or (dims.input_feature == 0 and dims.input_batch != 0))


def data_of(op: HloInstruction) -> tuple[Data, ...]:
    """The arrays of examples that a convolution reads and writes; not its kernel."""
    dims = op.convolution
    assert dims is not None
    lhs, rhs = op.operands[:2]
    if is_kernel_gradient(op):
        return Data(lhs, dims.input_feature, dims.input_batch), Data(rhs, dims.kernel_input_feature, dims.kernel_output_feature)
    return Data(lhs, dims.input_batch, dims.input_feature), Data(op.id, dims.output_batch, dims.output_feature)


def common_batches(modules: Iterable[HloModule]) -> tuple[int, ...]:
    """
    The most common batch of the convolutions; of equally common ones the largest first.

    Which of them XLA takes is not documented.
    """
    counts = Counter(
        part.instructions[data.id].shape.dimensions[data.batch]
        for module in modules
        for part in bodies(module)
        for op in part.instructions.values()
        if is_convolution(op)
        for data in data_of(op)[:1]
    )
    return tuple(sorted((batch for batch, n in counts.items() if n == max(counts.values())), reverse=True))


def convolution_order(rank: int, data: Data, batch: int) -> Order:
    """The order of what a convolution reads or writes where this is the most common batch."""
    fastest = (data.batch, data.feature) if batch >= LARGE_BATCH else (data.feature, data.batch)
    return *fastest, *(number for number in reversed(range(rank)) if number not in fastest)


def convolution_orders(part: HloComputation, batch: int) -> dict[int, Order]:
    """
    The orders that convolutions give arrays, by instruction: their own, and those of what lies around them.

    Elementwise ops have the order of what they read; pooling, slices and concatenations too; reductions what is left of it.
    """
    found: dict[int, Order] = {}
    for op in reversed(part.instructions.values()):
        if is_convolution(op):
            for data in data_of(op):
                order = convolution_order(len(part.instructions[data.id].shape.dimensions), data, batch)
                found[data.id] = order if data.id == op.id else found.get(data.id, order)
        elif op.id in found:
            for operand in _alike(op, part):
                found.setdefault(operand.id, found[op.id])
    for op in part.instructions.values():
        if op.id not in found and (inherited := _inherited(op, part, found)) is not None:
            found[op.id] = inherited
    return found


def kernels(part: HloComputation) -> frozenset[int]:
    """The kernels of convolutions and their gradients, and what they are read from through ops that change no size."""
    found: set[int] = set()
    for op in reversed(part.instructions.values()):
        if is_convolution(op):
            found.add(op.id if is_kernel_gradient(op) else op.operands[1])
        elif op.id in found and (op.opcode == "reverse" or op.opcode in ELEMENTWISE or is_identity(op, part)):
            found.update(operand.id for operand in part.operands(op) if operand.shape.dimensions == op.shape.dimensions)
    return frozenset(found)


def is_identity(op: HloInstruction, part: HloComputation) -> bool:
    """Whether it moves no element: reshapes to the same sizes, transposes and reverses of nothing."""
    if op.opcode == "reshape":
        return op.shape.dimensions == part.instructions[op.operands[0]].shape.dimensions
    return op.opcode == "transpose" and op.dimensions == tuple(range(len(op.shape.dimensions)))


def compact(shape: Shape, generation: Generation) -> Shape:
    """The array in the order that needs the least memory; of equally good ones that which is most like its own."""
    rank = len(shape.dimensions)
    pairs: Sequence[Order] = list(permutations(reversed(range(rank)), 2)) if rank > 1 else [tuple(range(rank))]
    orders = ((*pair, *(number for number in reversed(range(rank)) if number not in pair)) for pair in pairs)
    return min((tiled(shape, order, generation) for order in orders), key=padded_bytes)


def row_major(shape: Shape, generation: Generation) -> Shape:
    """The array with its last dimension the fastest."""
    return tiled(shape, tuple(reversed(range(len(shape.dimensions)))), generation)


def swapped_rows(shape: Shape, generation: Generation) -> Shape:
    """The array with its last dimension but one the fastest, and then the last."""
    *major, second, last = range(len(shape.dimensions))
    return tiled(shape, (second, last, *reversed(major)), generation)


def tiled(shape: Shape, order: Order, generation: Generation) -> Shape:
    """The array in this order with the tile that a TPU gives it; types of less than 8 bits are packed."""
    bits = shape.element_bits or shape.bits
    tile = generation.tile(max(1, bits), tuple(shape.dimensions[number] for number in order))
    return replace(shape, minor_to_major=order, tiles=(tile,), element_bits=shape.bits if shape.bits < 8 else shape.element_bits)


def _alike(op: HloInstruction, part: HloComputation) -> list[HloInstruction]:
    """The operands that have the order of an instruction's result."""
    operands = part.operands(op)
    if op.opcode in ELEMENTWISE or is_identity(op, part):
        return [operand for operand in operands if operand.shape.dimensions == op.shape.dimensions]
    if op.opcode not in _SAME_DIMENSIONS:
        return []
    return [operand for operand in operands if len(operand.shape.dimensions) == len(op.shape.dimensions) > 0]


def _inherited(op: HloInstruction, part: HloComputation, found: dict[int, Order]) -> Order | None:
    if op.opcode == "reduce" and op.operands and op.operands[0] in found:
        kept = [n for n in range(len(part.instructions[op.operands[0]].shape.dimensions)) if n not in op.dimensions]
        return tuple(kept.index(number) for number in found[op.operands[0]] if number in kept)
    return next((found[operand.id] for operand in _alike(op, part) if operand.id in found), None)
