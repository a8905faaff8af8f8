"""Inlining of functions into their callers, as XLA inlines them before all else (CallInliner)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule

_MOST = 1_000_000
"""Most instructions of a module with inlined functions, against nests of calls that blow up."""


def with_calls_inlined(module: HloModule) -> HloModule:
    """
    Put the instructions of each called function in place of its call.

    Results that pass through a tuple are read directly. The module is unchanged if it would become
    very large.
    """
    parts: dict[int, HloComputation] = {}
    n_left = _MOST
    for part in module.computations.values():  # callees come before their callers
        callees = [parts[op.called[0]] for op in part.instructions.values() if op.opcode == "call"]
        n_left -= sum(len(callee.instructions) for callee in callees)
        if n_left < 0:
            return module
        parts[part.id] = _inlined(part, parts) if callees else part
    return replace(module, computations=parts)


def _inlined(part: HloComputation, callees: Mapping[int, HloComputation]) -> HloComputation:
    made: dict[int, HloInstruction] = {}
    places: dict[int, int] = {}
    for op in part.instructions.values():
        if op.opcode == "call":
            places[op.id] = _copied(op, callees[op.called[0]], made, places)
        else:
            places[op.id] = _added(op, made, places)
    return replace(part, root_id=places[part.root_id], instructions=made)


def _copied(
    call: HloInstruction,
    callee: HloComputation,
    made: dict[int, HloInstruction],
    callers: Mapping[int, int],
) -> int:
    """
    Copy the instructions of a function.

    Args:
        call: Its call.
        callee: The function.
        made: The instructions so far.
        callers: New ids of the caller's instructions.

    Returns:
        The id of its result.
    """
    given = [callers[key] for key in call.operands]
    places: dict[int, int] = {}
    for op in callee.instructions.values():
        if op.opcode == "parameter":
            places[op.id] = given[op.parameter_number]
        else:
            named = replace(op, op_name=op.op_name or call.op_name)
            places[op.id] = _added(named, made, places)
    return places[callee.root_id]


def _added(op: HloInstruction, made: dict[int, HloInstruction], places: Mapping[int, int]) -> int:
    """
    Add an instruction, unless it reads what a tuple was made of.

    Args:
        op: The instruction.
        made: The instructions so far.
        places: New ids of the instructions before it.

    Returns:
        Its id.
    """
    operands = tuple(places[key] for key in op.operands)
    if op.opcode == "get-tuple-element" and made[operands[0]].opcode == "tuple":
        return made[operands[0]].operands[op.tuple_index]
    key = len(made)
    made[key] = replace(op, id=key, operands=operands)
    return key
