"""Products with one-hot rows, each of which computes what is a look-up."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from pytest_tfperf.hlo.inlining import with_calls_inlined
from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule
from pytest_tfperf.hlo.traversal import bodies

_DEEPEST = 30
"""Most instructions between a product and the numbers of its rows."""
_Finds = Callable[[HloComputation, HloInstruction, int], "int | None"]


def one_hot_products(module: HloModule) -> frozenset[tuple[str, str]]:
    """
    Return the (name, op_name) of the dots that sum over the dimension of a one-hot operand.

    Such an operand is where numbers equal the numbers 0, 1, 2 … along a dimension. Sums over
    another dimension, such as the gradient of the weights, are not look-ups.

    Args:
        module: A module before optimisation.
    """
    found = set()
    for part in bodies(with_calls_inlined(module)):
        for op in part.instructions.values():
            if op.opcode == "dot" and op.dot:
                summed = (op.dot.lhs_contracting, op.dot.rhs_contracting)
                for operand, dimensions in zip(part.operands(op), summed, strict=True):
                    if _one_hot(part, operand, _DEEPEST) in dimensions:
                        found.add((op.name, op.op_name))
    return frozenset(found)


def _one_hot(part: HloComputation, op: HloInstruction, depth: int) -> int | None:
    """Return the dimension along which a value is one-hot, None if it is not."""
    operands = part.operands(op)
    if op.opcode == "select" and [_scalar(part, one) for one in operands[1:]] == [1, 0]:
        return _one_hot(part, operands[0], depth - 1) if depth else None
    if op.opcode == "compare" and op.direction == "EQ":
        counted = [_counted(part, one, depth) for one in operands]
        known = [one for one in counted if one is not None]
        return known[0] if len(known) == 1 else None  # both are counted in an identity matrix
    return _through(part, op, depth, _one_hot)


def _counted(part: HloComputation, op: HloInstruction, depth: int) -> int | None:
    """Return the dimension along which a value is 0, 1, 2 …, None if it is not."""
    if op.opcode == "iota":
        return op.dimensions[0] if op.dimensions else 0
    return _through(part, op, depth, _counted)


def _scalar(part: HloComputation, op: HloInstruction) -> bool | float | None:
    """Return the number that a value is everywhere, None if it is none that is known."""
    return (part.operands(op)[0] if op.opcode == "broadcast" else op).constant


def _through(part: HloComputation, op: HloInstruction, depth: int, find: _Finds) -> int | None:
    """Find a dimension of what a value was moved or converted from, and return where it is now."""
    if not depth or op.opcode not in ("reshape", "transpose", "broadcast", "convert", "copy"):
        return None
    source = part.operands(op)[0]
    found = find(part, source, depth - 1)
    if found is None or op.opcode in ("convert", "copy"):
        return found
    if op.opcode == "transpose":
        return op.dimensions.index(found)
    if op.opcode == "broadcast":
        return op.dimensions[found]
    before, sizes = source.shape.dimensions, op.shape.dimensions
    places = (
        place
        for place, size in enumerate(sizes)
        if size == before[found] and prod(sizes[:place]) == prod(before[:found])
    )
    return next(places, None)
