"""Bytes that an XLA instruction reads and writes."""

from __future__ import annotations

from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule

_FREE = frozenset(
    [
        "parameter",
        "constant",
        "get-tuple-element",
        "tuple",
        "bitcast",
        "after-all",
        "add-dependency",
        "domain",
        "while",
        "call",
        "conditional",
        "partition-id",
        "replica-id",
        "opt-barrier",
    ]
)


_IMMEDIATE = 16
"""Elements of a constant that is part of a fusion's code (immediate_constant_max_elements)."""


def traffic(module: HloModule, computation: HloComputation, op: HloInstruction) -> int:
    """
    Count the bytes that an instruction reads and writes in one run.

    It is 0 for those that move nothing, and for loops and calls, whose bodies count instead.
    """
    operands = [operand.shape.bytes for operand in computation.operands(op)]
    result = op.shape.bytes
    if op.opcode in _FREE:
        return 0
    if op.opcode == "fusion":
        return _fusion(module.computations[op.called[0]])
    if op.opcode == "slice":
        return 2 * result
    if op.opcode in ("dynamic-slice", "gather"):
        return 2 * result + operands[1]
    if op.opcode == "dynamic-update-slice":
        return 2 * operands[1] + operands[2]
    if op.opcode == "scatter":
        n = len(operands) // 2
        return 3 * sum(operands[n + 1 :]) + operands[n]
    if op.opcode.endswith("-start"):
        return sum(operands)
    if op.opcode.endswith(("-done", "-update")):
        return result if op.opcode.endswith("-done") else 0
    if op.opcode == "custom-call" and op.custom_call_target.startswith("__cu"):
        result = next(op.shape.arrays(), op.shape).bytes  # without scratch memory
    return sum(operands) + result


def _fusion(inside: HloComputation) -> int:
    """
    Count the bytes that a fusion reads of parameters and large constants, and writes.

    Values in between stay in registers.
    """
    users: dict[int, list[HloInstruction]] = {}
    for op in inside.instructions.values():
        for key in dict.fromkeys(op.operands):
            users.setdefault(key, []).append(op)
    constants = [
        op.shape
        for op in inside.instructions.values()
        if op.opcode == "constant" and op.shape.elements > _IMMEDIATE
    ]
    read = sum(_read(parameter, users) for parameter in inside.parameters.values()) + sum(
        shape.bytes for shape in constants
    )
    roots = inside.operands(inside.root) if inside.root.opcode == "tuple" else (inside.root,)
    return read + sum(_written(inside, root) for root in roots)


def _read(value: HloInstruction, users: dict[int, list[HloInstruction]]) -> int:
    """
    Count the bytes read of a parameter.

    Of a slice only the part that is cut out counts, of a buffer that is updated in place nothing.
    All other uses read the whole parameter, once.
    """
    if value.shape.dtype == "tuple":
        return sum(
            _read(user, users)
            for user in users.get(value.id, ())
            if user.opcode == "get-tuple-element"
        )
    total, whole = 0, False
    for user in users.get(value.id, ()):
        first = user.operands[0] == value.id
        if user.opcode == "slice" or (user.opcode in ("dynamic-slice", "gather") and first):
            total += user.shape.bytes
        elif user.opcode != "dynamic-update-slice" or not first:
            whole = True
    return min(total, value.shape.bytes) if not whole else value.shape.bytes


def _written(inside: HloComputation, root: HloInstruction) -> int:
    """Count the bytes written of a result; of a buffer that is updated in place only the update."""
    return (
        inside.operands(root)[1].shape.bytes
        if root.opcode == "dynamic-update-slice"
        else root.shape.bytes
    )
