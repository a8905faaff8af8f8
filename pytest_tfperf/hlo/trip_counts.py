"""
Numbers of iterations of loops with constant bounds, in modules that no compiler has optimised.

XLA states them only in optimised modules (WhileLoopTripCountAnnotator). Here each loop's condition
is evaluated iteration by iteration, with the scalars that it depends on. Opcodes are those of
xla/hlo/ir/hlo_opcode.h (openxla/xla).
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pytest_tfperf.graphs import reached
from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule

_MOST_EFFORT = 20_000  # iterations and followed calls of a module: within a second
_DEEPEST = 50  # nested calls and loops

Scalar = bool | float
Known = Scalar | tuple["Known | None", ...]
"""A scalar, or a tuple of values with None for unknown ones."""

_PASS_ON = frozenset({"copy", "bitcast", "reshape", "opt-barrier"})
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}
_BINARY: dict[str, Callable[[float, float], Scalar]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "maximum": max,
    "minimum": min,
}
_LOGIC: dict[str, Callable[[bool, bool], bool]] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}
_WHOLE = {"s8": 8, "s16": 16, "s32": 32, "s64": 64}
"""Bits of the signed types in which arithmetic is followed; others are left unknown."""


@dataclass(slots=True)
class _Effort:
    """Number of iterations and calls that may still be followed in a module."""

    left: int = _MOST_EFFORT


@dataclass(frozen=True, slots=True)
class _Frame:
    """One run of a computation: the known values of its parameters and instructions."""

    module: HloModule
    part: HloComputation
    parameters: Mapping[int, Known | None]
    effort: _Effort
    depth: int = _DEEPEST
    values: dict[int, Known | None] = field(default_factory=dict)
    loops: dict[int, tuple[int | None, Known | None]] = field(default_factory=dict)

    def value(self, key: int) -> Known | None:
        """Return the value of an instruction, None if it is unknown."""
        waiting = [key]
        while waiting:  # no recursion: a computation may be a long chain
            one = self.part.instructions[waiting[-1]]
            missing = [key for key in one.operands if key not in self.values]
            if missing and one.id not in self.values:
                waiting += missing
                continue
            waiting.pop()
            if one.id not in self.values:
                self.values[one.id] = self._evaluated(one)
        return self.values[key]

    def _evaluated(self, op: HloInstruction) -> Known | None:
        if op.opcode == "constant":
            return op.constant
        if op.opcode == "parameter":
            return self.parameters.get(op.parameter_number)
        if op.opcode == "while":
            return self.loop(op)[1]
        given = [self.values[key] for key in op.operands]
        if op.opcode == "tuple":
            return tuple(given)
        if op.opcode == "call" and self.depth:
            callee = self.module.computations[op.called[0]]
            return self.inner(callee, dict(enumerate(given))).value(callee.root_id)
        if op.opcode == "get-tuple-element":
            whole = given[0]
            return whole[op.tuple_index] if isinstance(whole, tuple) else None
        if op.shape.dimensions or any(one is None or isinstance(one, tuple) for one in given):
            return None
        return _computed(op, given)

    def loop(self, op: HloInstruction) -> tuple[int | None, Known | None]:
        """Return the number of iterations of a loop and its result, None where unknown."""
        if op.id not in self.loops:
            self.loops[op.id] = _run(self, op, self.value(op.operands[0]))
        return self.loops[op.id]

    def inner(self, part: HloComputation, parameters: Mapping[int, Known | None]) -> _Frame:
        """Return a run of a computation that this one calls."""
        return _Frame(self.module, part, parameters, self.effort, self.depth - 1)


def with_trip_counts(module: HloModule) -> HloModule:
    """Return the module with the number of iterations of each loop with constant bounds."""
    loops = [
        op
        for part in module.computations.values()
        for op in part.instructions.values()
        if op.opcode == "while" and op.trip_count is None
    ]
    if not loops:
        return module
    found: dict[tuple[int, int], set[int | None]] = {}
    effort = _Effort()
    _follow(_Frame(module, module.entry, {}, effort), found)
    if not effort.left:  # other calls of a loop may have other bounds
        return module
    known = {place: next(iter(counts)) for place, counts in found.items() if len(counts) == 1}
    parts = {
        key: replace(
            part,
            instructions={
                op.id: _counted(op, known.get((key, op.id))) for op in part.instructions.values()
            },
        )
        for key, part in module.computations.items()
    }
    return replace(module, computations=parts)


def _counted(op: HloInstruction, count: int | None) -> HloInstruction:
    """Return a loop as an optimised module states its iterations; other ops unchanged."""
    if count is None or op.trip_count is not None:
        return op
    config = {**op.config, "known_trip_count": {"n": str(count)}}
    return replace(op, backend_config=json.dumps(config))


def _follow(frame: _Frame, found: dict[tuple[int, int], set[int | None]]) -> None:
    """
    Count the iterations of the loops in a computation and in those that it runs.

    Args:
        frame: The computation and what is known of its parameters.
        found: Counts of each loop so far, by computation and instruction.
    """
    effort = frame.effort
    effort.left = max(0, effort.left - 1) if frame.depth else 0
    if not effort.left:
        return
    for op in frame.part.instructions.values():
        callees = [frame.module.computations[key] for key in op.called]
        if op.opcode == "while":
            found.setdefault((frame.part.id, op.id), set()).add(frame.loop(op)[0])
            constant = _unchanged(callees[0], frame.value(op.operands[0]))
            for part in callees:
                _follow(frame.inner(part, {0: constant}), found)
        elif op.opcode == "call":
            given = {n: frame.value(key) for n, key in enumerate(op.operands)}
            _follow(frame.inner(callees[0], given), found)
        elif op.opcode == "conditional":
            for branch, key in zip(callees, op.operands[1:], strict=False):
                _follow(frame.inner(branch, {0: frame.value(key)}), found)


def _run(frame: _Frame, op: HloInstruction, state: Known | None) -> tuple[int | None, Known | None]:
    """
    Return how often a loop's condition is true, and the scalars of the loop's result.

    Args:
        frame: The computation of the loop.
        op: The loop.
        state: Initial values of the loop's variables.

    Returns:
        None for a count that is unknown or too large, and for unknown values.
    """
    body, condition = (frame.module.computations[key] for key in op.called)
    unknown = None, _unchanged(body, state)
    if not isinstance(state, tuple) or body.root.opcode != "tuple" or not frame.depth:
        return unknown
    needed = _needed(frame.module, body, condition)
    count = 0
    while frame.effort.left:
        again = frame.inner(condition, {0: state}).value(condition.root_id)
        if again is None or isinstance(again, tuple):
            return unknown
        if not again:
            return count, state
        frame.effort.left, count = frame.effort.left - 1, count + 1
        run = frame.inner(body, {0: state})
        state = tuple(
            run.value(key) if place in needed or isinstance(value, (bool, int, float)) else None
            for place, (key, value) in enumerate(zip(body.root.operands, state, strict=True))
        )
    return unknown


def _needed(module: HloModule, body: HloComputation, condition: HloComputation) -> frozenset[int]:
    """Return the places of the loop's variables that its condition depends on."""
    results = body.root.operands
    places = reached(
        _read(module, condition, condition.root_id, 0),
        lambda place: _read(module, body, results[place], 0),
    )
    return frozenset(places)


def _read(module: HloModule, part: HloComputation, key: int, number: int) -> list[int]:
    """
    Return the places of a parameter's elements that an instruction depends on.

    Args:
        module: The module.
        part: The computation of the instruction.
        key: Id of the instruction.
        number: Number of the parameter, a tuple.
    """
    found = []
    for one in reached([key], lambda key: part.instructions[key].operands):
        op = part.instructions[one]
        for place, operand in enumerate(part.operands(op)):
            if operand.opcode != "parameter" or operand.parameter_number != number:
                continue
            if op.opcode == "get-tuple-element":
                found.append(op.tuple_index)
            elif op.opcode == "call":
                callee = module.computations[op.called[0]]
                found += _read(module, callee, callee.root_id, place)
    return found


def _unchanged(body: HloComputation, state: Known | None) -> Known | None:
    """Return the initial values of the variables that a loop's body hands on as they are."""
    if not isinstance(state, tuple) or body.root.opcode != "tuple":
        return None
    return tuple(
        value if _is_handed_on(body, key, place) else None
        for place, (key, value) in enumerate(zip(body.root.operands, state, strict=False))
    )


def _is_handed_on(body: HloComputation, key: int, place: int) -> bool:
    op = body.instructions[key]
    while op.opcode in _PASS_ON:
        op = body.instructions[op.operands[0]]
    return (
        op.opcode == "get-tuple-element"
        and op.tuple_index == place
        and body.instructions[op.operands[0]].opcode == "parameter"
    )


def _computed(op: HloInstruction, given: list[Known | None]) -> Scalar | None:
    """Return the scalar result of known scalars, None for operations that are not followed."""
    values = [one for one in given if isinstance(one, (bool, int, float))]
    if op.opcode in _PASS_ON:
        return values[0]
    if op.opcode == "compare":
        return _COMPARE[op.direction](*values) if op.direction in _COMPARE else None
    if op.opcode == "select":
        return values[1] if values[0] else values[2]
    if op.shape.dtype == "pred":
        if op.opcode == "not":
            return not values[0]
        return _LOGIC[op.opcode](*map(bool, values)) if op.opcode in _LOGIC else None
    if op.shape.dtype not in _WHOLE:
        return None
    result = _whole(op.opcode, values)
    return (
        result if result is not None and abs(result) < 1 << (_WHOLE[op.shape.dtype] - 1) else None
    )


def _whole(opcode: str, values: list[Scalar]) -> Scalar | None:
    """Return the result of an operation on whole numbers; quotients round toward zero."""
    if opcode in _BINARY:
        return _BINARY[opcode](*values)
    if opcode == "negate":
        return -values[0]
    if opcode == "abs":
        return abs(values[0])
    if opcode == "sign":
        return (values[0] > 0) - (values[0] < 0)
    if opcode == "convert":
        return int(values[0])
    if opcode in ("divide", "remainder") and values[1]:
        dividend, divisor = map(int, values)
        quotient = abs(dividend) // abs(divisor) * (1 if (dividend < 0) == (divisor < 0) else -1)
        return quotient if opcode == "divide" else dividend - quotient * divisor
    return None
