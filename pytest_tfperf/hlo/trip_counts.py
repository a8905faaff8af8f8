"""
Numbers of iterations of loops that count from one constant to another, in unoptimised modules.

XLA states them only in optimised modules (WhileLoopTripCountAnnotator). Here a counter is a
variable of a loop to which its body adds the same number each time, and the condition is evaluated
for one value after another. Opcodes are those of xla/hlo/ir/hlo_opcode.h (openxla/xla).
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule

_MOST_EFFORT = 500_000  # evaluated instructions of a module: about a second
_DEEPEST = 50  # nested calls and loops

Known = int | tuple["Known | None", ...]
"""A truth value, an integer, or a tuple of values with None for unknown ones."""

_PASS_ON = frozenset({"copy", "bitcast", "reshape", "opt-barrier"})
_COMPARE: dict[str, Callable[..., bool]] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}
_COMPUTE: dict[str, Callable[..., int]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "convert": operator.pos,
}
_LOGIC: dict[str, Callable[..., bool]] = {
    "and": operator.and_,
    "or": operator.or_,
    "not": operator.not_,
}
_BITS = {"s8": 8, "s16": 16, "s32": 32, "s64": 64}
"""Bits of the types of numbers in which arithmetic is followed; others are left unknown."""


def with_trip_counts(module: HloModule) -> HloModule:
    """Return the module with the number of iterations of each loop that counts to a constant."""
    parts = module.computations.values()
    ops = (op for part in parts for op in part.instructions.values())
    if not any(op.opcode == "while" and op.trip_count is None for op in ops):
        return module
    run = _Run(module)
    run.values(module.entry, ())
    if run.left <= 0:  # other calls of a loop may have other bounds
        return module
    known = {place: next(iter(counts)) for place, counts in run.found.items() if len(counts) == 1}
    counted = {
        part.id: replace(
            part,
            instructions={
                op.id: _counted(op, known.get((part.id, op.id)))
                for op in part.instructions.values()
            },
        )
        for part in parts
    }
    return replace(module, computations=counted)


def _counted(op: HloInstruction, count: int | None) -> HloInstruction:
    """Return a loop as an optimised module states its iterations; other ops unchanged."""
    if count is None or op.trip_count is not None:
        return op
    config = {**op.config, "known_trip_count": {"n": str(count)}}
    return replace(op, backend_config=json.dumps(config))


@dataclass(slots=True)
class _Run:
    """A run of a module with the scalars that are known."""

    module: HloModule
    found: dict[tuple[int, int], set[int | None]] = field(default_factory=dict)
    """Iterations of each loop, by computation and instruction."""
    left: int = _MOST_EFFORT
    depth: int = 0

    def values(
        self, part: HloComputation, parameters: Sequence[Known | None]
    ) -> dict[int, Known | None]:
        """Return the values of a computation's instructions, and count the loops in it."""
        self.left = self.left - len(part.instructions) if self.depth < _DEEPEST else 0
        if self.left <= 0:
            return dict.fromkeys(part.instructions)
        self.depth += 1
        values: dict[int, Known | None] = {}
        for op in part.instructions.values():
            if op.opcode == "parameter":
                values[op.id] = parameters[op.parameter_number] if parameters else None
            else:
                values[op.id] = self._value(part, op, [values[key] for key in op.operands])
        self.depth -= 1
        return values

    def _value(
        self, part: HloComputation, op: HloInstruction, given: list[Known | None]
    ) -> Known | None:
        if op.opcode == "constant":
            return op.constant if isinstance(op.constant, int) else None
        if op.opcode == "tuple":
            return tuple(given)
        if op.opcode == "get-tuple-element":
            return given[0][op.tuple_index] if isinstance(given[0], tuple) else None
        if op.opcode in _PASS_ON:
            return given[0]
        called = [self.module.computations[key] for key in op.called]
        if op.opcode == "while":
            count, state = self._loop(called[0], called[1], given[0])
            self.found.setdefault((part.id, op.id), set()).add(count)
            return state
        if op.opcode == "call":
            return self.values(called[0], given)[called[0].root_id]
        if op.opcode == "conditional":
            for branch, argument in zip(called, given[1:], strict=False):
                self.values(branch, [argument])
            return None
        return _computed(op, given)

    def _loop(
        self, body: HloComputation, condition: HloComputation, state: Known | None
    ) -> tuple[int | None, Known | None]:
        """Return how often a loop runs, and the variables at its end; None where unknown."""
        if not isinstance(state, tuple) or body.root.opcode != "tuple":
            self.values(body, [None])
            return None, None
        results = list(enumerate(_behind_copies(body, op) for op in body.operands(body.root)))
        constant = tuple(
            value if _is_variable(body, op, place) else None
            for (place, op), value in zip(results, state, strict=True)
        )
        inside, count = self.values(body, [constant]), 0
        while self.left > 0:
            again = self.values(condition, [state])[condition.root_id]
            if again is not True:
                return (count, state) if again is False else (None, constant)
            state = tuple(
                None if value is None else _next(body, op, place, value, inside)
                for (place, op), value in zip(results, state, strict=True)
            )
            count += 1
        return None, constant


def _next(
    body: HloComputation,
    op: HloInstruction,
    place: int,
    value: Known,
    inside: dict[int, Known | None],
) -> Known | None:
    """Return a loop's variable after an iteration: the same, or with a constant added to it."""
    if _is_variable(body, op, place):
        return value
    return _computed(
        op,
        [value if _is_variable(body, one, place) else inside[one.id] for one in body.operands(op)],
    )


def _is_variable(body: HloComputation, op: HloInstruction, place: int) -> bool:
    """Return whether an instruction is the loop's variable at a place, as an iteration begins."""
    op = _behind_copies(body, op)
    return (
        op.opcode == "get-tuple-element"
        and op.tuple_index == place
        and body.instructions[op.operands[0]].opcode == "parameter"
    )


def _behind_copies(part: HloComputation, op: HloInstruction) -> HloInstruction:
    while op.opcode in _PASS_ON:
        op = part.instructions[op.operands[0]]
    return op


def _computed(op: HloInstruction, given: Sequence[Known | None]) -> Known | None:
    """Return the scalar result of known scalars, None for operations that are not followed."""
    if op.shape.dimensions or any(one is None or isinstance(one, tuple) for one in given):
        return None
    if op.opcode == "compare":
        return _COMPARE[op.direction](*given) if op.direction in _COMPARE else None
    if op.shape.dtype == "pred":
        return _LOGIC[op.opcode](*given) if op.opcode in _LOGIC else None
    if op.opcode not in _COMPUTE or op.shape.dtype not in _BITS:
        return None
    result = _COMPUTE[op.opcode](*given)
    return result if abs(result) < 1 << (_BITS[op.shape.dtype] - 1) else None
