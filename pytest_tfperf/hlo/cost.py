"""
The cost of an XLA module: FLOPs, those of matrix multiplications, their bits, and bytes moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pytest_tfperf.errors import TraceError
from pytest_tfperf.hlo.avoidable import avoidable_products
from pytest_tfperf.hlo.custom_calls import (
    declared_flops,
    hidden_computations,
    hides_flops,
    hides_products,
)
from pytest_tfperf.hlo.flops import applications, matmul_flops, own_flops
from pytest_tfperf.hlo.matmuls import Operands
from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule, source_line
from pytest_tfperf.hlo.operand_types import hides_types
from pytest_tfperf.hlo.traffic import traffic
from pytest_tfperf.hlo.trip_counts import with_trip_counts
from pytest_tfperf.hlo.walk import bodies

_HALF = 16  # bits


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
    op_type: str = ""
    """Type of the framework's op, if the module names it."""
    runs: int = 1
    """Number of its runs in one run of the module."""
    avoidable: str = ""
    """Kind of a product of which most is not needed (`hlo/avoidable.py`), else empty."""
    needed: float = 1.0
    """Share of its FLOPs that is needed."""


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
    module: HloModule | None = field(default=None, repr=False, compare=False)
    """The module."""

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
            "the CPU's compiler widens 16-bit matrix multiplications to float32, and the compiled "
            f"module does not show the types that {share:.0%} of the matmul FLOPs were written with"
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
    are_hidden = hides_types(module)
    works: dict[int, dict[int, Work]] = {}
    totals: dict[int, Work] = {}
    for part in module.computations.values():  # callees come before their callers
        works[part.id] = {
            op.id: _work(part, op, totals, are_hidden) for op in part.instructions.values()
        }
        totals[part.id] = sum(works[part.id].values(), Work())
    executed, unknown = bodies(module), hidden_computations(module)
    runs = _runs(module, executed, totals)
    avoidable = {} if module.scheduled else avoidable_products(module)
    ops = [(part, op) for part in executed for op in part.instructions.values()]
    return Costs(
        work=totals[module.entry_id],
        ops=tuple(
            _cost(module, part, op, works[part.id][op.id], unknown, runs[part.id], avoidable)
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
        module=module,
    )


def _work(
    part: HloComputation, op: HloInstruction, totals: dict[int, Work], are_hidden: bool
) -> Work:
    """
    Compute the work of one run of an instruction, with that of what it calls.

    Args:
        part: The computation of the instruction.
        op: The instruction.
        totals: Work of the computations before, by id.
        are_hidden: True if wide products may have been written with 16 bits.
    """
    operands = part.operands(op)
    flops = matmul_flops(op, operands)
    if flops is not None:
        if all(0 < factor.shape.bits <= _HALF for factor in operands[:2]):
            return Work(flops, flops, flops)
        return Work(flops, flops, 0, flops if are_hidden else 0)
    if op.opcode == "conditional":
        return max((totals[key] for key in op.called), key=lambda work: work.flops, default=Work())
    if op.opcode == "custom-call":
        return Work(declared_flops(op) or 0)
    inside = (
        totals[key] * times
        for key, times in zip(op.called, applications(op, operands), strict=False)
    )
    return sum(inside, Work(own_flops(op, operands)))


def _runs(
    module: HloModule, executed: list[HloComputation], totals: dict[int, Work]
) -> dict[int, int]:
    """
    Count the runs of each executed computation in one run of the module, as `_work` counts them.

    Args:
        module: The module.
        executed: The computations that run as such.
        totals: Work of each computation, by id.
    """
    runs = dict.fromkeys((part.id for part in executed), 0)
    runs[module.entry_id] = 1
    for part in reversed(module.computations.values()):  # callers come before their callees
        for op in part.instructions.values():
            if not op.called or not runs.get(part.id):
                continue
            called = list(zip(op.called, applications(op, part.operands(op)), strict=False))
            if op.opcode == "conditional":
                called = [(max(op.called, key=lambda key: totals[key].flops), 1)]
            for key, times in called:
                if key in runs:
                    runs[key] += runs[part.id] * times
    return runs


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
    module: HloModule,
    part: HloComputation,
    op: HloInstruction,
    work: Work,
    unknown: set[int],
    runs: int,
    avoidable: Mapping[tuple[str, str], tuple[str, float]],
) -> OpCost:
    """
    Return the cost of one run of an instruction.

    Args:
        module: The module.
        part: The computation of the instruction.
        op: The instruction.
        work: Its FLOPs, as far as they are known.
        unknown: Ids of the computations whose FLOPs are unknown.
        runs: Number of runs of the computation.
        avoidable: Kind and needed share of the products that are mostly not needed, by name.
    """
    array = next(op.shape.arrays(), op.shape)
    counted = not hides_flops(op, part.operands(op)) and unknown.isdisjoint(op.called)
    moved = traffic(module, part, op)
    kind, needed = avoidable.get((op.name, op.op_name), ("", 1.0))
    return OpCost(
        name=op.name,
        opcode=op.opcode,
        op_name=op.op_name,
        dtype=array.dtype,
        work=work,
        bytes=moved,
        counted=counted,
        line=source_line(op) or "",
        op_type=op.op_type,
        runs=runs,
        avoidable=kind,
        needed=needed,
    )
