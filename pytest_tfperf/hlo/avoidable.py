"""Matrix multiplications of which most is not needed: look-ups, diagonals, and results cut down."""

from __future__ import annotations

from math import prod

from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule
from pytest_tfperf.hlo.walk import ELEMENTWISE, bodies, with_calls_inlined

LOOK_UP, DIAGONAL, SLICED = "look-up", "diagonal", "sliced"
"""Kinds: a product with one-hot rows or a diagonal matrix, and one of which a part is used."""
_MOVES = frozenset({"reshape", "transpose", "broadcast", "convert", "copy"})
_KEEPS = ELEMENTWISE | _MOVES
_TAKES = frozenset({"slice", "dynamic-slice", "gather"})
_DEEPEST = 30
"""Most instructions between a product and what tells its kind."""
_MOST_USED = 0.5
"""Largest share of a result that is used, for the rest to count as avoidable."""


def avoidable_products(module: HloModule) -> dict[tuple[str, str], tuple[str, float]]:
    """
    Return the kind of dots by (name, op_name), and the share of their FLOPs that is needed.

    A one-hot operand is where a number equals one of 0, 1, 2 … along the dimension that the dot
    sums over, and a diagonal one where two such dimensions are equal. The dot of a function has a
    kind if that is the same in all calls.
    """
    found: dict[tuple[str, str], set[tuple[str, float] | None]] = {}
    for part in bodies(with_calls_inlined(module)):
        used = _used(part)
        for op in part.instructions.values():
            if op.opcode == "dot":
                kinds = found.setdefault((op.name, op.op_name), set())
                kinds.add(_kind(part, op, used.get(op.id, 1.0)))
    return {key: kind for key, (kind, *others) in found.items() if kind and not others}


def _kind(part: HloComputation, op: HloInstruction, used: float) -> tuple[str, float] | None:
    summed = (op.dot.lhs_contracting, op.dot.rhs_contracting) if op.dot else ()
    for operand, dimensions in zip(part.operands(op), summed, strict=False):
        if _one_hot(part, operand, _DEEPEST) in dimensions:
            return LOOK_UP, 0.0
        if _is_diagonal(part, operand) and len(dimensions) == 1:
            return DIAGONAL, 0.0
    return (SLICED, used) if used <= _MOST_USED else None


def _one_hot(part: HloComputation, op: HloInstruction, depth: int) -> int | None:
    """Return the dimension along which a value is one-hot, None if it is not."""
    if not depth:
        return None
    operands = part.operands(op)
    if op.opcode == "select" and [_scalar(part, one) for one in operands[1:]] == [1, 0]:
        return _one_hot(part, operands[0], depth - 1)
    if op.opcode in _MOVES:
        return _moved(part, op, _one_hot(part, operands[0], depth - 1))
    counted = _compared(part, op, depth)
    for dimension, other in zip(counted, reversed(operands), strict=False):
        if dimension is not None and None in counted and _repeats(part, other, dimension):
            return dimension
    return None


def _repeats(part: HloComputation, op: HloInstruction, dimension: int) -> bool:
    """Return whether a broadcast makes a value the same all along a dimension."""
    for _ in range(_DEEPEST):
        if op.opcode not in _MOVES:
            return False
        before = part.operands(op)[0]
        places = range(len(before.shape.dimensions))
        place = next((one for one in places if _moved(part, op, one) == dimension), None)
        if place is None:
            return op.opcode == "broadcast"
        op, dimension = before, place
    return False


def _is_diagonal(part: HloComputation, op: HloInstruction) -> bool:
    """Return whether a matrix has zeros beside its diagonal; it may be transposed or cast."""
    for _ in range(_DEEPEST):
        operands = part.operands(op)
        if op.opcode == "select" and len(op.shape.dimensions) == 2:
            where = operands[0]
            while where.opcode in ("broadcast", "reshape") and where.shape.elements == (
                part.operands(where)[0].shape.elements
            ):
                where = part.operands(where)[0]
            rows_and_columns = set(_compared(part, where, _DEEPEST))
            return _scalar(part, operands[2]) == 0 and rows_and_columns == {0, 1}
        if op.opcode not in ("transpose", "convert", "copy"):
            return False
        op = operands[0]
    return False


def _compared(part: HloComputation, op: HloInstruction, depth: int) -> list[int | None]:
    """Return the dimension along which each operand of `==` is 0, 1, 2 …, if it is that."""
    if op.opcode != "compare" or op.direction != "EQ":
        return []
    return [_counted(part, one, depth) for one in part.operands(op)]


def _counted(part: HloComputation, op: HloInstruction, depth: int) -> int | None:
    """Return the dimension along which a value is 0, 1, 2 …, None if it is not."""
    if op.opcode == "iota":
        return op.dimensions[0] if op.dimensions else 0
    operands = part.operands(op)
    if not depth:
        return None
    if op.opcode == "add" and _scalar(part, operands[1]) == 0:
        return _counted(part, operands[0], depth - 1)
    if op.opcode in _MOVES:
        return _moved(part, op, _counted(part, operands[0], depth - 1))
    return None


def _scalar(part: HloComputation, op: HloInstruction) -> bool | float | None:
    """Return the number that a value is everywhere, None if it is none that is known."""
    return (part.operands(op)[0] if op.opcode == "broadcast" else op).constant


def _moved(part: HloComputation, op: HloInstruction, dimension: int | None) -> int | None:
    """Return where a dimension of an operand is in what an instruction moved or converted."""
    if dimension is None or op.opcode in ("convert", "copy"):
        return dimension
    if op.opcode == "transpose":
        return op.dimensions.index(dimension)
    if op.opcode == "broadcast":
        return op.dimensions[dimension]
    before, sizes = part.operands(op)[0].shape.dimensions, op.shape.dimensions
    places = (
        place
        for place, size in enumerate(sizes)
        if size == before[dimension] and prod(sizes[:place]) == prod(before[:dimension])
    )
    return next(places, None)


def _used(part: HloComputation) -> dict[int, float]:
    """Return the share of each value that its users take out of it, if none may read all of it."""
    users: dict[int, list[HloInstruction]] = {}
    for op in part.instructions.values():
        for key in dict.fromkeys(op.operands):
            users.setdefault(key, []).append(op)
    found: dict[int, float] = {}
    for op in reversed(part.instructions.values()):  # users before operands
        shares: list[float | None] = []
        for user in users.get(op.id, ()):
            if user.opcode in _TAKES and user.operands[0] == op.id:
                shares.append(user.shape.elements / max(op.shape.elements, 1))
            elif user.opcode in _KEEPS and user.shape.elements == op.shape.elements:
                shares.append(found.get(user.id))
            else:
                shares.append(None)
        known = [share for share in shares if share is not None]
        if op.id != part.root_id and known and len(known) == len(shares):
            found[op.id] = sum(known)
    return found
