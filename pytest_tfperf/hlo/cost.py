"""
The cost of an XLA module: FLOPs, those of matrix multiplications, their bits, and bytes moved.

A multiply-add of a product counts as two operations, of any type, and an element of another
elementwise op as one if the operands and the result are floating-point or complex numbers, be it an
addition or a tanh. Integers, booleans, casts, comparisons, selections and sorts count as none. A
cumulative sum of n elements is n − 1 additions. Calls of GPU libraries count as the product
or convolution they stand for.

XLA's HloCostAnalysis (openxla/xla, xla/service/hlo_cost_analysis.cc) counts each element of integer
work, n log n for a sort, and n − 1 for each of n elements of a cumulative sum. It counts functions
such as tanh apart. Other counts are as there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from pytest_tfperf.errors import TraceError
from pytest_tfperf.hlo.avoidable import avoidable_products
from pytest_tfperf.hlo.module import (
    HloComputation,
    HloInstruction,
    HloModule,
    Shape,
    WindowDimension,
    source_line,
)
from pytest_tfperf.hlo.products import (
    Operands,
    Product,
    matmul_of,
    products_of,
)
from pytest_tfperf.hlo.traffic import traffic
from pytest_tfperf.hlo.trip_counts import with_trip_counts
from pytest_tfperf.hlo.walk import bodies

_NO_FLOPS = frozenset(
    [
        "AllocateBuffer",
        "AssumeGatherIndicesInBound",
        "CreateBuffer",
        "GlobalToLocalShape",
        "LocalToGlobalShape",
        "MoveToDevice",
        "MoveToHost",
        "PadToStatic",
        "Pin",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "Sharding",
        "SliceToDynamic",
        "TopK",
        "Unpin",
        "X64Combine",
        "X64SplitHigh",
        "X64SplitLow",
        "annotate_device_placement",
        "xla.sdy.FuncResultSharding",
        "xla.sdy.GlobalToLocalShape",
        "xla.sdy.LocalToGlobalShape",
        "__cub$DeviceRadixSort",
        "__cub$DeviceRadixSortUnassignedScratchSize",
        "__gpu$TopK",
        "cu_threefry2x32",
        "cu_threefry2x32_ffi",
        "hip_threefry2x32",
        "hip_threefry2x32_ffi",
    ]
)
"""
Targets that only mark, move, select or sort (openxla/xla: host_memory_offload_annotations.h, the
SPMD partitioner, Shardy's constants, dynamic_padder.cc, cublas_cudnn.h), or that compute with
integers alone: JAX's random numbers on GPUs (jax/_src/prng.py).
"""
_OF_PYTHON = re.compile(r"xla_(ffi_(partitioned_)?)?python_(cpu|gpu)_callback")
"""
Targets that call Python with arrays of the host, whose work is not the program's: pure_callback,
io_callback and jax.debug (jax/_src/callback.py; the first form in older versions). buffer_callback
gets the device's memory, mostly to run another library's kernel on it, so its work is unknown.
"""
_ARITHMETIC = frozenset(
    [
        "abs",
        "add",
        "atan2",
        "cbrt",
        "ceil",
        "clamp",
        "cosine",
        "divide",
        "erf",
        "exponential",
        "exponential-minus-one",
        "floor",
        "log",
        "log-plus-one",
        "logistic",
        "maximum",
        "minimum",
        "multiply",
        "negate",
        "power",
        "remainder",
        "round-nearest-afz",
        "round-nearest-even",
        "rsqrt",
        "sign",
        "sine",
        "sqrt",
        "subtract",
        "tan",
        "tanh",
    ]
)
_UNREAD = frozenset(["ragged-dot", "scan"])
"""
Opcodes whose work is not counted: it depends on data, as the sizes of groups, or on attributes that
are not read (openxla/xla, xla/hlo/ir/hlo_opcode.h).
"""
_COMPLEX_MULTIPLY_ADDS = 4


def declared_flops(op: HloInstruction) -> int | None:
    """
    Return the FLOPs that the author of a kernel declared; None without a declaration.

    Source: `cost_estimate` of Pallas' kernels for TPUs (jax/_src/tpu_custom_call.py); a compiler
    that rewrites the configuration writes the number as text. Triton's kernels, Transformer Engine
    and cuDNN declare none.
    """
    call = op.config.get("custom_call_config")
    cost = call.get("cost_estimate") if isinstance(call, dict) else None
    text = str(cost.get("flops", "")) if isinstance(cost, dict) else ""
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


def hides_flops(op: HloInstruction, operands: Operands) -> bool:
    """Return whether an instruction, such as a custom call, has unknown FLOPs."""
    return op.opcode in _UNREAD or (
        op.opcode == "custom-call"
        and not _is_free(op.custom_call_target)
        and matmul_of(op, operands) is None
        and declared_flops(op) is None
    )


def hides_products(op: HloInstruction, operands: Operands) -> bool:
    """
    Return whether an instruction, such as a custom call, may multiply matrices of unknown types.

    Declared FLOPs do not say which types they have, unless there are none.
    """
    return op.opcode in _UNREAD or (
        op.opcode == "custom-call"
        and not _is_free(op.custom_call_target)
        and matmul_of(op, operands) is None
        and declared_flops(op) != 0
    )


def _is_free(target: str) -> bool:
    return target in _NO_FLOPS or _OF_PYTHON.fullmatch(target) is not None


def hidden_computations(module: HloModule) -> set[int]:
    """Return the ids of computations with unknown FLOPs, their own or those of what they call."""
    unknown: set[int] = set()
    for part in module.computations.values():  # callees come before their callers
        if any(
            hides_flops(op, part.operands(op)) or not unknown.isdisjoint(op.called)
            for op in part.instructions.values()
        ):
            unknown.add(part.id)
    return unknown


def own_flops(op: HloInstruction, operands: Operands) -> int:
    """Count the FLOPs of another instruction, without those of the computations it calls."""
    if op.opcode in _ARITHMETIC:
        shapes = (op.shape, *(operand.shape for operand in operands))
        return op.shape.elements if all(shape.is_floating for shape in shapes) else 0
    if op.opcode in ("all-reduce", "all-reduce-start"):
        return sum(array.elements for array in op.shape.arrays() if array.is_floating)
    if op.opcode == "fft":
        factors = prod(size.bit_length() - 1 for size in op.fft_length)
        return 2 * _COMPLEX_MULTIPLY_ADDS * factors * operands[0].shape.elements
    if op.opcode == "triangular-solve":
        return 2 * operands[0].shape.dimensions[-1] * operands[1].shape.elements
    if op.opcode == "cholesky":
        return operands[0].shape.dimensions[-1] * operands[0].shape.elements // 3
    return 0


def applications(op: HloInstruction, operands: Operands) -> tuple[int, ...]:
    """
    Return how often an instruction runs each computation that it calls.

    The result is empty for a conditional, which runs one of several.
    """
    if op.opcode in ("fusion", "call", "async-start"):
        return (1,)
    if op.opcode == "while":
        return (1, 1) if op.trip_count is None else (op.trip_count, op.trip_count + 1)
    result = next(op.shape.arrays(), op.shape).elements
    window = prod(dimension.size for dimension in op.window)
    if op.opcode == "map":
        return (result,)
    if op.opcode == "reduce":
        return (max(0, operands[0].shape.elements - result),)
    if op.opcode == "reduce-window":
        scanned = _scanned(op, operands[0].shape)
        return (scanned if scanned is not None else (window - 1) * result,)
    if op.opcode == "select-and-scatter":
        source = operands[1].shape.elements
        return ((window - 1) * source, source)
    if op.opcode == "scatter":
        return (operands[len(operands) // 2 + 1].shape.elements,)
    return ()


def _scanned(op: HloInstruction, data: Shape) -> int | None:
    """
    Count the runs of the reducer in a cumulative sum or the like; None for other windows.

    There the window is as long as one dimension, and padded on one side at most: each result adds
    an element to the one beside it.
    """
    moved = [
        (window, size)
        for window, size in zip(op.window, data.dimensions, strict=False)
        if window != WindowDimension(1)
    ]
    if len(moved) != 1:
        return None
    window, size = moved[0]
    is_dilated = (window.window_dilation, window.base_dilation) != (1, 1)
    is_scan = window.size == size and min(window.padding_low, window.padding_high) == 0
    return data.elements // size * (size - 1) if is_scan and not is_dilated else None


@dataclass(frozen=True, slots=True)
class Work:
    """FLOPs by kind."""

    flops: int = 0
    """All FLOPs."""
    matmul_flops: int = 0
    """FLOPs of matrix multiplications and convolutions."""
    half_flops: int = 0
    """Those of them whose operands are known to have 16 bits or fewer."""

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.matmul_flops + other.matmul_flops,
            self.half_flops + other.half_flops,
        )

    def __mul__(self, times: int) -> Work:
        return Work(self.flops * times, self.matmul_flops * times, self.half_flops * times)


@dataclass(frozen=True, slots=True)
class OpCost:
    """The cost of one run of an instruction that a trace has events of."""

    name: str
    opcode: str
    op_name: str
    """Name of the framework's op."""
    dtype: str
    """Type of the result, as in HLO text."""
    work: Work
    """FLOPs; those of a loop or a call include what it runs."""
    bytes: int
    """Bytes read and written, without padding."""
    counted: bool = True
    """False if FLOPs of it, or of an instruction in it, are unknown."""
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
    uncounted: tuple[str, ...]
    """Targets of custom calls, and other opcodes, whose FLOPs are unknown."""
    once: tuple[str, ...]
    """Loops with FLOPs counted as one iteration, since the module does not name their number."""
    opaque: tuple[str, ...] = ()
    """Targets of custom calls, and other opcodes, that may multiply matrices of unknown types."""
    products: tuple[Product, ...] = ()
    """Its matrix multiplications and convolutions; those of a branch that is left out run 0 ×."""
    module: HloModule | None = field(default=None, repr=False, compare=False)

    @property
    def flops(self) -> int:
        """FLOPs of all instructions."""
        return self.work.flops

    @property
    def matmul_flops(self) -> int:
        """FLOPs of matrix multiplications and convolutions."""
        return self.work.matmul_flops

    @property
    def half_flops(self) -> int:
        """Matmul FLOPs whose operands are known to have 16 bits or fewer."""
        return self.work.half_flops

    @property
    def unsure_flops(self) -> float:
        """Matmul FLOPs of which the module does not tell the types of the operands."""
        return sum(one.flops * one.runs for one in self.products if one.half is None)


Programs = Sequence[tuple[Costs, float]]
"""The costs of each module of a step, and how often it runs in one, on all devices together."""


def products_in(programs: Iterable[tuple[Costs, float]]) -> list[Product]:
    """Return the products that modules run, with their runs in a step."""
    return [
        replace(one, runs=one.runs * runs)
        for costs, runs in programs
        for one in costs.products
        if one.runs
    ]


def module_costs(module: HloModule) -> Costs:
    """
    Compute the FLOPs of one run of a module and the cost of each of its instructions.

    A loop counts as often as it runs, if the compiler knows; the largest branch of a conditional
    counts. Instructions without a use count as well; a module that no compiler has optimised may
    hold some. Raises TraceError if an instruction does not fit its operands.
    """
    try:
        return _costs(module)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise TraceError(
            f"module {module.name}: an instruction does not fit its operands: {error!r}"
        ) from error


def _costs(module: HloModule) -> Costs:
    module = with_trip_counts(module)
    products = products_of(module)
    works: dict[int, dict[int, Work]] = {}
    totals: dict[int, Work] = {}
    for part in module.computations.values():  # callees come before their callers
        works[part.id] = {
            op.id: _work(part, op, totals, products.get((part.id, op.id)))
            for op in part.instructions.values()
        }
        totals[part.id] = sum(works[part.id].values(), Work())
    executed, unknown = bodies(module), hidden_computations(module)
    runs = _runs(module, totals)
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
        products=tuple(replace(one, runs=runs[part]) for (part, _), one in products.items()),
        module=module,
    )


def _work(
    part: HloComputation, op: HloInstruction, totals: dict[int, Work], product: Product | None
) -> Work:
    """Compute the work of one run of an instruction, with that of what it calls."""
    if product is not None:
        return Work(product.flops, product.flops, product.flops if product.half else 0)
    if op.opcode == "conditional":
        return max((totals[key] for key in op.called), key=lambda work: work.flops, default=Work())
    if op.opcode == "custom-call":
        return Work(declared_flops(op) or 0)
    operands = part.operands(op)
    inside = (
        totals[key] * times
        for key, times in zip(op.called, applications(op, operands), strict=False)
    )
    return sum(inside, Work(own_flops(op, operands)))


def _runs(module: HloModule, totals: dict[int, Work]) -> dict[int, int]:
    """Count the runs of each computation in one run of the module, as `_work` counts them."""
    runs = dict.fromkeys(module.computations, 0)
    runs[module.entry_id] = 1
    for part in reversed(module.computations.values()):  # callers come before their callees
        for op in part.instructions.values():
            if not op.called or not runs[part.id]:
                continue
            called = list(zip(op.called, applications(op, part.operands(op)), strict=False))
            if op.opcode == "conditional":
                called = [(max(op.called, key=lambda key: totals[key].flops), 1)]
            for key, times in called:
                runs[key] += runs[part.id] * times
    return runs


def _targets(
    module: HloModule,
    executed: list[HloComputation],
    hides: Callable[[HloInstruction, Operands], bool],
) -> tuple[str, ...]:
    """Return the targets, else the opcodes, of unknown work, also those in fusions."""
    fused = [
        module.computations[op.called[0]]
        for part in executed
        for op in part.instructions.values()
        if op.opcode == "fusion"
    ]
    found = (
        op.custom_call_target or op.opcode
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
    """Return the cost of one run of an instruction."""
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
