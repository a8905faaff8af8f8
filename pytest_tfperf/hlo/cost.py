"""The work of an XLA module: FLOPs, those of matrix multiplications and convolutions, and with how many bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_tfperf.errors import TraceError
from pytest_tfperf.hlo.flops import applications, matmul_flops, own_flops
from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule
from pytest_tfperf.hlo.operand_types import OperandTypes
from pytest_tfperf.hlo.traversal import bodies

_MARKS = frozenset(
    [  # custom calls that compute nothing
        "AllocateBuffer",
        "MoveToDevice",
        "MoveToHost",
        "Sharding",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "annotate_device_placement",
    ]
)


@dataclass(frozen=True, slots=True)
class Work:
    """
    FLOPs: all; those of matrix multiplications and convolutions; and of the latter those whose operands have 16 bits or fewer, and
    those of which the module does not tell.
    """

    flops: int = 0
    matmul_flops: int = 0
    half_flops: int = 0
    unsure_flops: int = 0

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
    """
    One run of an instruction that a trace has events of.

    `dtype` is its result's; `bytes` it reads and writes, without padding. A loop's or a call's work is that of what it runs.
    """

    name: str
    opcode: str
    op_name: str
    dtype: str
    work: Work
    bytes: int


@dataclass(frozen=True, slots=True)
class Costs:
    """
    The work of one run of a module.

    `uncounted` are the targets of custom calls whose FLOPs nobody knows, `once` the loops that were counted as one round since
    the module does not say how many they make.
    """

    work: Work
    ops: tuple[OpCost, ...]
    uncounted: tuple[str, ...]
    once: tuple[str, ...]

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
        """Those of them whose operands have 16 bits or fewer; None where the module does not tell (see `why`)."""
        return None if self.work.unsure_flops else self.work.half_flops

    @property
    def why(self) -> str:
        """Why `half_flops` is None."""
        if not self.work.unsure_flops:
            return ""
        share = self.work.unsure_flops / self.work.matmul_flops
        return (
            f"the CPU's compiler computes 16-bit matrix multiplications in float32, and of {share:.0%} of the matmul FLOPs"
            " the compiled module does not show which type they were written with"
        )


def module_costs(module: HloModule) -> Costs:
    """
    FLOPs of one run of a module, by the rules of XLA's HloCostAnalysis, and what each instruction costs.

    A loop counts as often as it runs, if the compiler knows; of a conditional the largest branch counts. Every instruction
    counts, also one without a use, of which a module that no compiler has optimised may hold some.

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
    types = OperandTypes(module)
    works: dict[int, dict[int, Work]] = {}
    totals: dict[int, Work] = {}
    for part in module.computations.values():  # callees come before their callers
        works[part.id] = {
            op.id: _work(types, part, op, totals) for op in part.instructions.values()
        }
        totals[part.id] = sum(works[part.id].values(), Work())
    executed = bodies(module)
    ops = [(part, op) for part in executed for op in part.instructions.values()]
    return Costs(
        work=totals[module.entry_id],
        ops=tuple(
            _cost(module, part, op, works[part.id][op.id])
            for part, op in ops
            if op.opcode not in ("parameter", "constant")
        ),
        uncounted=tuple(dict.fromkeys(_uncounted(module, executed))),
        once=tuple(op.name for _, op in ops if op.opcode == "while" and op.trip_count is None),
    )


def _work(
    types: OperandTypes, part: HloComputation, op: HloInstruction, totals: dict[int, Work]
) -> Work:
    """The work of one run of an instruction, with that of what it calls."""
    operands = part.operands(op)
    flops = matmul_flops(op, operands)
    if flops is not None:
        half = types.half(part, op) if flops else True
        return Work(flops, flops, flops if half else 0, flops if half is None else 0)
    if op.opcode == "conditional":
        return max((totals[key] for key in op.called), key=lambda work: work.flops, default=Work())
    inside = (
        totals[key] * times
        for key, times in zip(op.called, applications(op, operands), strict=False)
    )
    return sum(inside, Work(own_flops(op, operands)))


def _uncounted(module: HloModule, executed: list[HloComputation]) -> Iterator[str]:
    """The targets of custom calls whose work is not known, also those in fusions."""
    fused = [
        module.computations[op.called[0]]
        for part in executed
        for op in part.instructions.values()
        if op.opcode == "fusion"
    ]
    for part in executed + fused:
        for op in part.instructions.values():
            if (
                op.opcode == "custom-call"
                and op.custom_call_target not in _MARKS
                and matmul_flops(op, part.operands(op)) is None
            ):
                yield op.custom_call_target


def _cost(module: HloModule, part: HloComputation, op: HloInstruction, work: Work) -> OpCost:
    array = next(op.shape.arrays(), op.shape)
    return OpCost(op.name, op.opcode, op.op_name, array.dtype, work, traffic(module, part, op))


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


_IMMEDIATE = 16  # elements of a constant in a fusion that is part of the code (immediate_constant_max_elements)


def traffic(module: HloModule, computation: HloComputation, op: HloInstruction) -> int:
    """Bytes that an instruction reads and writes in one run; 0 for what moves none, and for loops and calls, whose inside does."""
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
        result = next(op.shape.arrays(), op.shape).bytes  # behind it is scratch memory
    return sum(operands) + result


def _fusion(inside: HloComputation) -> int:
    """What a fusion reads of its parameters and large constants, and writes of its results; what is between stays in registers."""
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
    """Bytes read of a parameter: of a slice that which is cut out, of a buffer that is updated in place none; else all, once."""
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
    """Bytes written of a result: of a buffer that is updated in place, only the update."""
    return (
        inside.operands(root)[1].shape.bytes
        if root.opcode == "dynamic-update-slice"
        else root.shape.bytes
    )
