"""Name the arrays that live at the peak of a step's memory, and the remedy of each kind."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from pytest_tfperf.advice.step_remedies import DENSE, WIDE
from pytest_tfperf.facts.executions import short_module
from pytest_tfperf.facts.host_activity import JAX
from pytest_tfperf.facts.memory import Live, is_on_device
from pytest_tfperf.graphs import CALL, Dims, OpNode
from pytest_tfperf.hlo.module import HloInstruction, HloModule, source_line
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.metrics.memory import analyse_peak
from pytest_tfperf.quantities import BYTES, SHARE
from pytest_tfperf.text import and_more
from pytest_tfperf.trace.hlo_modules import buffer_bytes, modules_of, planned_buffers
from pytest_tfperf.trace.xspace import Trace
from pytest_tfperf.values import MEMORY_CAUSES, Column, Source, Table, Value

_COLUMNS = (
    Column("metric", "value"),
    Column("size", "size", BYTES),
    Column("share", "of the peak", SHARE),
    Column("where", "where"),
    Column("try", "try"),
)
_LEAST = 0.05
"""Least share of the peak of a cause that is listed."""
_KEPT = 3
"""Results of other ops than gradients, from which on they are kept for the gradient."""
_HOPS = 8
"""Ops between an array and the one that made it large."""
_GRADIENT = re.compile(r"gradient_tape/|(^|/)gradients/|transpose\(")
_LARGER: tuple[tuple[str, float, str], ...] = (
    (
        r"add|addv2|sub|mul|multiply|subtract|realdiv|div|divide|truediv|squareddifference|pow|"
        r"maximum|minimum|max|min|(not)?equal|eq|ne|lt|gt|le|ge|less\w*|greater\w*|logical\w*|"
        r"and|or|atan2|select\w*",
        2,
        "leave the array of all pairs out: a product of matrices where it gives the same, as in "
        "|a-b|² = |a|² + |b|² - 2ab, or parts of the rows at a time ({parts})",
    ),
    (
        r"\w*matmul\w*|einsum|dot|dot_general",
        8,
        "compute the product of all pairs in parts of the rows ({parts}), or attention by a fused "
        "kernel where the hardware has one",
    ),
    (r"onehot", 2, "use the indices: tf.gather in a product, a sparse loss for labels"),
    (
        r"tile|broadcastto|broadcast_in_dim|broadcast",
        2,
        "leave the copies to broadcasting: most ops take dimensions of size 1",
    ),
)
"""Ops whose result is so many times larger than each operand, and their remedies."""
_PARTS = {True: "jax.lax.map(..., batch_size=n)", False: "tf.map_fn or a loop"}
_AGAIN = {True: "jax.checkpoint", False: "tf.recompute_grad, keras.RematScope"}
_DONATE = (
    "jax.jit(..., donate_argnums=...) for the arguments that the step replaces, so that the new "
    "state takes the memory of the old one"
)
_NAMELESS = "XLA_Args"  # of TensorFlow's programs
_BATCH = "a smaller batch, or parts of it at a time"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Array:
    """Arrays of one op that live at the peak."""

    size: int
    dtype: str
    shape: tuple[int, ...]
    op: str
    """Name of the op, or of the argument."""
    op_type: str
    line: str
    remedy: str = ""
    """The remedy of the op that made it larger than its operands, if there is one."""
    count: int = 1

    @property
    def title(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    @property
    def described(self) -> str:
        """Its shape and origin: `float32[8,8] of MatMul 'scores' at model.py:12`."""
        times = f"{self.count} × " if self.count > 1 else ""
        made = f" of {self.op_type}" if self.op_type else ""
        name = f" {self.op!r}" if self.op and self.op != self.op_type else ""
        return f"{times}{self.title}{made}{name}" + (f" at {self.line}" if self.line else "")


Row = tuple[int, str, str]
"""Bytes, where, try."""


def analyse(evidence: Evidence) -> Findings:
    """Find the arrays that live at the peak of a step, the largest first."""
    trace = evidence.trace
    value = analyse_peak(evidence).values["peak_memory"]
    if trace is None or not value.number:
        return Findings()
    rows = sorted(_rows(evidence, trace, value), key=lambda row: (-row[0], not row[2]))
    peak = value.number if value.source is Source.HLO else value.high()
    whole = max(peak, sum(size for size, *_ in rows))
    cells = [
        ("peak_memory", size, size / whole, where, remedy)
        for size, where, remedy in rows
        if size >= _LEAST * whole
    ]
    table = Table.of("What the memory holds at its peak", _COLUMNS, cells)
    return Findings(tables={MEMORY_CAUSES: table} if cells else {})


def _rows(evidence: Evidence, trace: Trace, value: Value) -> Iterator[Row]:
    """Ask XLA's plan, the allocator, or the graph for its largest result, as the value does."""
    ops = () if evidence.framework == JAX else evidence.code.ops
    nodes = {op.name.removeprefix(CALL): op for op in ops}
    live: Sequence[Live] = ()
    if value.source is Source.TRACE:
        is_any = not value.detail.get("on_device")
        peaks = (one for one in evidence.memory_peaks if is_any or is_on_device(one.allocator))
        live = next((one.live for one in peaks), ())
    elif value.source is Source.TIMED:
        results = (_result(op) for op in ops if op.inputs)
        live = sorted(filter(None, results), key=lambda one: one.bytes)[-1:]
    arrays = (_allocated(one, nodes, evidence) for one in live)
    found = list(filter(None, arrays))
    is_xla = value.source is not Source.TIMED and 2 * sum(one.size for one in found) < value.low()
    if is_xla:  # whose arrays have no op in an allocator's events
        yield from _of_plan(evidence, trace, nodes)
    else:
        yield from _described(found, evidence, nodes)


def _result(op: OpNode) -> Live | None:
    """Return the largest result of an op, as an allocation."""
    shape, dtype = _largest(op) or ((), "")
    bits = re.search(r"\d+$", dtype)
    size = prod(shape) * (max(int(bits[0]) // 8, 1) if bits else int(dtype == "bool"))
    one = Live(op=op.name, region="", dtype=dtype, shape=str(shape), bytes=size, count=1)
    return one if size else None


def _of_plan(evidence: Evidence, trace: Trace, nodes: Mapping[str, OpNode]) -> Iterator[Row]:
    """Name the arrays in XLA's plan of the step's largest program."""
    plans = buffer_bytes(trace)
    ran = {*(evidence.xla.all_in_metadata(plans) or ()), *(evidence.late.compiled or ())}
    name = max(sorted(ran & plans.keys()), key=lambda one: plans[one], default="")
    module = modules_of(trace, [name]).get(name) if name else None
    if module is None:
        return
    ops = {op.id: op for part in module.computations.values() for op in part.instructions.values()}
    roles: dict[str, list[_Array]] = {"argument": [], "result": [], "temporary": []}
    for buffer in planned_buffers(trace, name):
        if op := ops.get(buffer.instruction):
            roles[buffer.role].append(_planned(op, ops, module, buffer.size, nodes, evidence))
    function = short_module(name).removeprefix("jit_")
    given, made = roles["argument"], roles["result"]
    data = {re.sub(r"[a-z]+(?=\d)", "", one) for one in _inputs(evidence)}
    states = [one for one in given if re.sub(r"[a-z]+(?=\d)", "", one.title) not in data]
    left, again = Counter(one.title for one in states), []
    for one in made:
        if left[one.title] and not _GRADIENT.search(one.op):
            left[one.title] -= 1
            again.append(one)
    if again:
        is_own = evidence.framework == JAX and not evidence.launched.in_keras
        where = f"results of {function} beside arguments of the same shapes: {_titles(again)}"
        yield sum(one.size for one in again), where, _DONATE if is_own else ""
    if given:
        names = and_more([one.op for one in given if one.op != _NAMELESS], 3)
        where = f"arguments of {function}: {_titles(given)}" + (f" ({names})" if names else "")
        yield sum(one.size for one in given), where, ""
    for one in again:
        made.remove(one)
    if made:
        remedy = next((one.remedy for one in made if one.remedy), "")
        lines = and_more(list(dict.fromkeys(one.line for one in made if one.line)), 2)
        at = f" at {lines}" if lines else ""
        where = f"results of {function}: {_titles(made)}{at}"
        yield sum(one.size for one in made), where, remedy
    weights = {one.shape for one in states} if evidence.framework == JAX else set()
    yield from _described(roles["temporary"], evidence, nodes, weights)


def _described(
    arrays: Sequence[_Array],
    evidence: Evidence,
    nodes: Mapping[str, OpNode],
    states: Iterable[tuple[int, ...]] = (),
) -> Iterator[Row]:
    """Name arrays by what made them; what is kept for the gradient is one cause."""
    is_jax, batch = evidence.framework == JAX, evidence.workload.get("batch")
    reads = (_largest(op) for op in nodes.values() if op.op_type == "ReadVariableOp")
    written = (one.shape for one in arrays if one.op_type.startswith(("Assign", "ResourceApply")))
    weights = {*states, *written, *(found[0] for found in reads if found)}
    batch_remedy = _BATCH
    larger = {one.title: one.remedy for one in arrays if one.remedy}  # what follows is as large
    arrays = [replace(one, remedy=larger.get(one.title, "")) for one in arrays]
    kept = [one for one in arrays if not (_GRADIENT.search(one.op) or one.remedy)]
    has_gradient = any(map(_GRADIENT.search, (*nodes, *(one.op for one in arrays))))
    if has_gradient and sum(one.count for one in kept) >= _KEPT:
        arrays = [one for one in arrays if one not in kept]
        largest = max(kept, key=lambda one: one.size / one.count)
        n, size = sum(one.count for one in kept), sum(one.size for one in kept)
        where = f"{n} results kept for the gradient, the largest {largest.described}"
        remedy = f"compute them again in the gradient ({_AGAIN[is_jax]})"
        if _is_of_batch(largest, batch, weights):
            remedy, batch_remedy = f"{remedy}, or a smaller batch", ""
        yield size, where, remedy
    for one in _alike(arrays):
        remedies = [one.remedy] if one.remedy else []
        if one.op_type.startswith("UnsortedSegment") and one.shape in weights:
            remedies.append(DENSE)
        if one.dtype in WIDE:
            remedies.append("float32, which halves it")
        if not remedies and _is_of_batch(one, batch, weights):
            remedies = [batch_remedy]
        yield one.size, one.described, "; ".join(remedies)


def _alike(arrays: Iterable[_Array]) -> Iterator[_Array]:
    """Join arrays of one shape, line and type of op."""
    groups: dict[tuple[str, str, str], list[_Array]] = {}
    for one in arrays:
        groups.setdefault((one.title, one.op_type, one.line), []).append(one)
    for group in groups.values():
        size, count = sum(one.size for one in group), sum(one.count for one in group)
        op = group[0].op if len(group) == 1 else group[0].op_type
        yield replace(group[0], size=size, count=count, op=op)


def _inputs(evidence: Evidence) -> Sequence[str]:
    """Return type and shape of each array of an element of the data."""
    inputs: Sequence[str] = evidence.recording.workload.get("inputs", ())
    return inputs


def _titles(arrays: Iterable[_Array]) -> str:
    counts = Counter(one.title for one in sorted(arrays, key=lambda one: -one.size))
    return and_more([t if n == 1 else f"{t} ×{n}" for t, n in counts.items()], 3)


def _is_of_batch(one: _Array, batch: object, weights: Collection[tuple[int, ...]]) -> bool:
    """Return whether a smaller batch makes an array smaller, as its first size tells."""
    if not isinstance(batch, int) or batch < 2 or not one.shape:
        return False
    return one.shape[0] % batch == 0 and one.shape not in weights


def _remedy(kind: str, ratio: float, framework: str) -> str:
    """Return the remedy of an op whose result is so many times larger than each operand."""
    for kinds, least, text in _LARGER:
        if ratio >= least and re.fullmatch(kinds, kind, re.IGNORECASE):
            return text.format(parts=_PARTS[framework == JAX])
    return ""


def _allocated(live: Live, nodes: Mapping[str, OpNode], evidence: Evidence) -> _Array | None:
    """Return what an allocator tells of an array; None of one that no op of the step made."""
    short = live.op.removeprefix(CALL)
    node = nodes.get(short)
    lines = {op_type: line for op_type, line, _ in evidence.recording.eager}
    if nodes and node is None and short not in lines:
        return None
    shape = tuple(map(int, re.findall(r"\d+", live.shape)))
    remedy = ""
    if node is None:  # an eager op names its type, and pairs have a dimension more than the inputs
        texts = [re.findall(r"\d+(?=[,\]])", one) for one in _inputs(evidence)]
        if texts and len(shape) > max(map(len, texts)):
            sizes = (prod(map(int, one)) for one in texts)
            remedy = _remedy(short, prod(shape) / max(*sizes, 1), evidence.framework)
    origin, hops = node, 0
    while origin is not None and not remedy and hops < _HOPS:
        operands = [(_known(one.shape), one.op) for one in origin.inputs]
        sizes_of = [(prod(sizes), op) for sizes, op in operands if sizes is not None]
        own = prod(found[0]) if (found := _largest(origin)) else 0
        most = max((size for size, _ in sizes_of), default=own)
        remedy = _remedy(origin.op_type, own / max(most, 1), evidence.framework)
        same = (op for size, op in sizes_of if size == own)
        origin, hops = nodes.get(next(same, "").removeprefix(CALL)), hops + 1
    return _Array(
        size=live.bytes,
        dtype=live.dtype,
        shape=shape,
        op=short,
        op_type=node.op_type if node else short,
        line=(node.line if node else lines.get(short)) or "",
        remedy=remedy,
        count=live.count,
    )


def _largest(op: OpNode) -> tuple[tuple[int, ...], str] | None:
    """Return shape and type of the largest result of an op, None if no shape is known."""
    known = [(_known(one.shape), one.dtype) for one in op.outputs]
    sizes = [(shape, dtype) for shape, dtype in known if shape is not None]
    return max(sizes, key=lambda one: prod(one[0]), default=None)


def _known(shape: Dims | None) -> tuple[int, ...] | None:
    sizes = () if shape is None else tuple(size for size in shape if size is not None)
    return sizes if shape is not None and len(sizes) == len(shape) else None


def _planned(
    op: HloInstruction,
    ops: Mapping[int, HloInstruction],
    module: HloModule,
    size: int,
    nodes: Mapping[str, OpNode],
    evidence: Evidence,
) -> _Array:
    """Return an array of XLA's plan, by the op of the framework that it comes from."""
    shape = max(op.shape.arrays(), key=lambda one: one.bytes, default=op.shape)
    most = max((ops[key].shape.elements for key in op.operands if key in ops), default=0)
    inside = [one for key in op.called for one in module.computations[key].instructions.values()]
    remedy, made = "", op
    for one in (op, *reversed(inside)) if most else ():
        if one.shape.elements == shape.elements and not remedy:
            remedy = _remedy(_kind(one), shape.elements / most, evidence.framework)
            made = one if remedy else op
    line = source_line(made) or source_line(op)
    node = nodes.get(made.op_name.removeprefix(CALL))
    return _Array(
        size=size,
        dtype=shape.dtype,
        shape=shape.dimensions,
        op=made.op_name,
        op_type=_kind(made),
        line=Path(line).name if line else (node.line or "") if node else "",
        remedy=remedy,
    )


def _kind(op: HloInstruction) -> str:
    """Return the type of the framework's op, or its primitive in JAX."""
    return "" if op.opcode == "parameter" else op.op_type or op.op_name.rpartition("/")[2]
