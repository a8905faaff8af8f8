"""
The cost of an XLA module: FLOPs, those of matrix multiplications, their bits, and bytes moved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pytest_tfperf.errors import TraceError
from pytest_tfperf.hlo.custom_calls import (
    declared_flops,
    hidden_computations,
    hides_flops,
    hides_products,
)
from pytest_tfperf.hlo.flops import applications, matmul_flops, own_flops
from pytest_tfperf.hlo.matmuls import Operands
from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule, source_line
from pytest_tfperf.hlo.operand_types import OperandTypes
from pytest_tfperf.hlo.traversal import bodies
from pytest_tfperf.hlo.trip_counts import with_trip_counts


@dataclass(frozen=True, slots=True)
class Work:
    """FLOPs by kind."""

    flops: int = 0
    """All FLOPs."""
    matmul_flops: int = 0
    """FLOPs of matrix multiplications and convolutions."""
    half_flops: int = 0
    """Those of them whose operands have 16 bits or fewer."""
    unsure_flops: int = 0
    """Those of them whose operand types the module does not tell."""

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.matmul_flops + other.matmul_flops,
            self.half_flops + other.half_flops,
            self.unsure_flops + other.unsure_flops,
        )

    def __mul__(self, times: int) -> Work:
        return Work(
            self.flops * times,
            self.matmul_flops * times,
            self.half_flops * times,
            self.unsure_flops * times,
        )


@dataclass(frozen=True, slots=True)
class OpCost:
    """The cost of one run of an instruction that a trace has events of."""

    name: str
    """Name of the instruction."""
    opcode: str
    """Opcode of the instruction."""
    op_name: str
    """Name of the framework's op."""
    dtype: str
    """Type of the result, as in HLO text."""
    work: Work
    """FLOPs; those of a loop or a call include what it runs."""
    bytes: int
    """Bytes read and written, without padding."""
    counted: bool = True
    """False if FLOPs of a custom call in it are unknown."""
    line: str = ""
    """The user's source line, if the module names it."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of one run of a module."""

    work: Work
    """FLOPs of matrix products and of other arithmetic."""
    ops: tuple[OpCost, ...]
    """Cost of each instruction."""
    uncounted: tuple[str, ...]
    """Targets of custom calls whose FLOPs are unknown."""
    once: tuple[str, ...]
    """Loops with FLOPs counted as one iteration, since the module does not name their number."""
    opaque: tuple[str, ...] = ()
    """Targets of custom calls that may multiply matrices of unknown types."""

    @property
    def flops(self) -> int:
        """FLOPs of all instructions."""
        return self.work.flops

    @property
    def matmul_flops(self) -> int:
        """FLOPs of matrix multiplications and convolutions."""
        return self.work.matmul_flops

    @property
    def half_flops(self) -> int | None:
        """Matmul FLOPs whose operands have 16 bits or fewer; None if unknown (see `why`)."""
        return None if self.work.unsure_flops else self.work.half_flops

    @property
    def why(self) -> str:
        """The reason why `half_flops` is None, else an empty text."""
        if not self.work.unsure_flops:
            return ""
        share = self.work.unsure_flops / self.work.matmul_flops
        return (
            "the CPU's compiler computes 16-bit matrix multiplications in float32, and for"
            f" {share:.0%} of the matmul FLOPs the compiled module does not show the original type"
        )


def module_costs(module: HloModule) -> Costs:
    """
    Compute the FLOPs of one run of a module and the cost of each of its instructions.

    A loop counts as often as it runs, if the compiler knows; the largest branch of a conditional
    counts. Instructions without a use count as well; a module that no compiler has optimised may
    hold some.

    Raises:
        TraceError: If an instruction does not fit its operands.
    """
    try:
        return _costs(module)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise TraceError(
            f"module {module.name}: an instruction does not fit its operands: {error!r}"
        ) from error


def _costs(module: HloModule) -> Costs:
    module = with_trip_counts(module)
    types = OperandTypes(module)
    works: dict[int, dict[int, Work]] = {}
    totals: dict[int, Work] = {}
    for part in module.computations.values():  # callees come before their callers
        works[part.id] = {
            op.id: _work(types, part, op, totals) for op in part.instructions.values()
        }
        totals[part.id] = sum(works[part.id].values(), Work())
    executed, unknown = bodies(module), hidden_computations(module)
    ops = [(part, op) for part in executed for op in part.instructions.values()]
    return Costs(
        work=totals[module.entry_id],
        ops=tuple(
            _cost(module, part, op, works[part.id][op.id], unknown)
            for part, op in ops
            if op.opcode not in ("parameter", "constant")
        ),
        uncounted=_targets(module, executed, hides_flops),
        opaque=_targets(module, executed, hides_products),
        once=tuple(
            op.name
            for part, op in ops
            if op.opcode == "while" and op.trip_count is None and works[part.id][op.id].flops
        ),
    )


def _work(
    types: OperandTypes, part: HloComputation, op: HloInstruction, totals: dict[int, Work]
) -> Work:
    """
    Compute the work of one run of an instruction, with that of what it calls.

    Args:
        types: Operand types of the module.
        part: The computation of the instruction.
        op: The instruction.
        totals: Work of the computations before, by id.
    """
    operands = part.operands(op)
    flops = matmul_flops(op, operands)
    if flops is not None:
        half = types.half(part, op) if flops else True
        return Work(flops, flops, flops if half else 0, flops if half is None else 0)
    if op.opcode == "conditional":
        return max((totals[key] for key in op.called), key=lambda work: work.flops, default=Work())
    if op.opcode == "custom-call":
        return Work(declared_flops(op) or 0)
    inside = (
        totals[key] * times
        for key, times in zip(op.called, applications(op, operands), strict=False)
    )
    return sum(inside, Work(own_flops(op, operands)))


def _targets(
    module: HloModule,
    executed: list[HloComputation],
    hides: Callable[[HloInstruction, Operands], bool],
) -> tuple[str, ...]:
    """
    Return the targets of custom calls whose work is unknown, also those in fusions.

    Args:
        module: The module.
        executed: The computations that run as such.
        hides: Accepts a call whose work is unknown.
    """
    fused = [
        module.computations[op.called[0]]
        for part in executed
        for op in part.instructions.values()
        if op.opcode == "fusion"
    ]
    found = (
        op.custom_call_target
        for part in executed + fused
        for op in part.instructions.values()
        if hides(op, part.operands(op))
    )
    return tuple(dict.fromkeys(found))


def _cost(
    module: HloModule, part: HloComputation, op: HloInstruction, work: Work, unknown: set[int]
) -> OpCost:
    """
    Return the cost of one run of an instruction.

    Args:
        module: The module.
        part: The computation of the instruction.
        op: The instruction.
        work: Its FLOPs, as far as they are known.
        unknown: Ids of the computations whose FLOPs are unknown.
    """
    array = next(op.shape.arrays(), op.shape)
    counted = not hides_flops(op, part.operands(op)) and unknown.isdisjoint(op.called)
    moved = traffic(module, part, op)
    line = source_line(op) or ""
    return OpCost(op.name, op.opcode, op.op_name, array.dtype, work, moved, counted, line)


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

    Args:
        module: The module.
        computation: The computation of the instruction.
        op: The instruction.

    Returns:
        0 for instructions that move nothing, and for loops and calls, whose bodies count instead.
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
