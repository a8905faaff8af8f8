"""Graphs of a step: ops before and after Grappler, those that XLA compiles, and what stands out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from pytest_tfperf import op_types
from pytest_tfperf.advice.by_framework import UNROLLED
from pytest_tfperf.facts.executions import short_module
from pytest_tfperf.facts.host_activity import JAX, PYTORCH, TENSORFLOW
from pytest_tfperf.graphs import CALL, OpNode, StepGraph
from pytest_tfperf.hlo.layout import shape_text
from pytest_tfperf.hlo.module import HloComputation, HloInstruction, HloModule, source_line
from pytest_tfperf.hlo.walk import with_calls_inlined
from pytest_tfperf.metrics.evidence import UNTRACED, Evidence, Findings
from pytest_tfperf.op_types import DATA_LOOPS, EAGER, WHY_OUTSIDE, computes
from pytest_tfperf.quantities import BYTES, COUNT, format_quantity
from pytest_tfperf.text import and_more
from pytest_tfperf.values import Column, Source, Table, Unknown, Value

_METRICS = ("graph_ops", "graph_reduction", "xla_coverage")
_NOT_SEEN = "no step was run for the graphs"
_NO_FUNCTION = "the step calls no tf.function, so it has no graph"
_WITHOUT_GRAPH = {
    JAX: "JAX has no graph of TensorFlow ops: XLA compiles all that it runs",
    PYTORCH: UNTRACED,
}
_DATA_LOOP = (
    "a tf.function loops over a dataset (for … in dataset), and what Grappler makes of the loop's "
    "body is not visible"
)
_NOTHING = "nothing in the step computes: there are constants, copies and variables alone"
_FELL_BACK = (
    "{n} of {of} auto-clusters did not run in the traced steps, as after a change of shapes: give "
    "every batch the same shape, or set jit_compile=True on the tf.function"
)
_AUTO = "cluster_"  # what auto-clustering calls its executables
_SHOWN, _LAYERS = 5, 2
_MOST_TYPES = 2_000  # more than TensorFlow has, so that comparisons miss none
EagerOps = Sequence[tuple[str, str | None, int]]
"""(type, the user's line, count) of the ops that Python ran."""
OPTIMIZERS = {
    "constant_folding": "constant folding",
    "arithmetic_optimization": "arithmetic",
    "layout_optimizer": "layout",
    "remapping": "remapper",
    "dependency_optimization": "dependency",
    "disable_model_pruning": "pruning",
    "function_optimization": "function",
    "shape_optimization": "shape",
    "loop_optimization": "loop",
    "scoped_allocator_optimization": "scoped allocator",
    "pin_to_host_optimization": "pin to host",
    "auto_mixed_precision": "auto mixed precision",
    "auto_mixed_precision_onednn_bfloat16": "auto mixed precision (oneDNN, bfloat16)",
    "auto_mixed_precision_mkl": "auto mixed precision (oneDNN, bfloat16)",
    "debug_stripper": "debug stripper",
}
_AS_ARGUMENT = (
    "pass it as an argument: a constant is a part of the program, which is copied and compiled "
    "with it (TensorFlow: or hold it in a tf.Variable that is made outside of the function)"
)
_CALLED = re.compile(r"(StatefulPartitionedCall/)?(gradient_tape/)?")
_SCOPE = re.compile(r"(?:(?:[^/]*model|functional|sequential)[^/]*/)*([^/:]+)/")
_MANY = 100
"""Ops of one kind, line and layer from which a loop of Python is likely to have made them."""
_MOST = 0.3
"""Least share of such ops among those that compute, from which the loop is what is slow."""
_ASSIGNS = re.compile(r"^(Assign\w*|ResourceApply\w*)$")
_VARIABLES = 8
"""Variables that one scope assigns from which it is an optimizer's."""
_LARGE_BYTES, _LARGE_ELEMENTS = 4 << 20, 1024
_DEAR = ("dot", "convolution", "sort", "scatter", "gather", "reduce-window", "reduce")
_LAID_OUT = frozenset(
    {
        *("parameter", "constant", "get-tuple-element", "tuple", "bitcast", "broadcast", "iota"),
        *("reshape", "transpose", "convert", "copy", "slice", "concatenate", "call"),
    }
)
"""Ops that compute nothing."""
_INTO_XLA = {
    op_types.TEXT: "turn text into numbers before the step, in the input pipeline",
    op_types.PYTHON: (
        "write it with TensorFlow's ops, or call it outside the function that is compiled"
    ),
    op_types.NO_KERNEL: (
        "replace it by ops that XLA compiles, or keep it outside the function that is compiled"
    ),
    op_types.DYNAMIC: (
        "jit_compile=True on its tf.function takes it; or keep the size constant: tf.where(mask, "
        "x, 0)"
    ),
    op_types.RANDOM: "tf.random.stateless_uniform and its siblings can be clustered",
    op_types.EAGER: "move it into a tf.function",
    op_types.LEFT_OUT: "jit_compile=True on its tf.function compiles it whole",
    op_types.UNASKED: (
        "jit_compile=True on its tf.function or in model.compile, or autocluster=True on the marker"
    ),
}


class Outside(NamedTuple):
    """Ops of one type outside XLA, which one line of the user's made."""

    op: str
    """Name of one of them."""
    op_type: str
    line: str | None
    """The user's line."""
    why: str
    """One of `WHY_OUTSIDE`, or `EAGER`."""
    n_ops: int


def analyse(evidence: Evidence) -> Findings:
    """Find what Grappler and XLA made of the step's graphs."""
    if evidence.framework in _WITHOUT_GRAPH:
        why = _WITHOUT_GRAPH[evidence.framework]
        values = {name: Value.unknown(name, why) for name in _METRICS}
        if evidence.recording.framework == JAX:
            values["xla_coverage"] = values["xla_coverage"].changed(detail={"outside": {}})
        return Findings(values=values)
    graph, eager = evidence.code.graph, evidence.recording.eager
    if isinstance(graph, Unknown):
        why = graph.why or _NOT_SEEN
        return Findings(values={name: Value.unknown(name, why) for name in _METRICS})
    in_keras = evidence.trace is not None and evidence.launched.in_keras
    values = graph_values(graph, eager, _clusters_that_ran(evidence), in_keras)
    if max(graph.after.values(), default=0) >= _MANY:
        values = _with_loops(values, evidence.code.ops)
    return Findings(values=values, tables=graph_tables(graph, eager))


def analyse_passes(evidence: Evidence) -> Findings:
    """Find what each Grappler pass removed."""
    table = optimizer_table(evidence.code.grappler)
    return Findings(tables={"optimizers": table} if table.rows else {})


def _clusters_that_ran(evidence: Evidence) -> int | None:
    """Return how many auto-clusters the traced steps ran, None if that is not known."""
    if evidence.trace is None or evidence.why_xla_unknown:
        return None
    # one that was compiled for several shapes has several executables
    return len({short_module(name) for name in evidence.xla.modules if name.startswith(_AUTO)})


def graph_values(
    graph: StepGraph, eager: EagerOps, n_ran: int | None, in_keras: bool = False
) -> dict[str, Value]:
    """Return graph_ops, graph_reduction and xla_coverage; `n_ran` clusters ran, None if unknown."""
    return {
        **_grappler_values(graph),
        "xla_coverage": _coverage(graph, eager, n_ran, in_keras),
    }


def graph_tables(graph: StepGraph, eager: EagerOps) -> dict[str, Table]:
    """Return the tables of ops by type before and after Grappler, and of ops outside XLA."""
    tables = {
        "graph": _type_table(graph),
        "outside_xla": _outside_table(outside_xla(graph, eager)),
    }
    return {key: table for key, table in tables.items() if table.rows}


def outside_xla(graph: StepGraph, eager: EagerOps) -> list[Outside]:
    """Return the compute nodes outside XLA, those that it cannot compile first, then by number."""
    first = {(op.op_type, op.line, op.why): op.name for op in reversed(graph.outside)}
    counts = Counter((op.op_type, op.line, op.why) for op in graph.outside)
    found = [Outside(first[key], *key, count) for key, count in counts.items()]
    found += [
        Outside("", op_type, line, EAGER, count)
        for op_type, line, count in eager
        if _is_compute(op_type)
    ]
    rank = {why: index for index, why in enumerate(WHY_OUTSIDE)}
    found.sort(key=lambda one: (rank.get(one.why, 0), -one.n_ops, one.op_type, one.line or ""))
    return found


def _is_compute(op_type: str) -> bool:
    """Return whether an op that Python ran computes; functions (`__inference_…`) are in graphs."""
    return computes(op_type) and not op_type.startswith("__")


def _grappler_values(graph: StepGraph) -> dict[str, Value]:
    before, after = sum(graph.before.values()), sum(graph.after.values())
    if not before:
        return {
            name: Value.unknown(name, _NO_FUNCTION) for name in ("graph_ops", "graph_reduction")
        }
    detail = {"before": before, "after": after, "where": _grappler_text(graph)}
    reduction = Value.of("graph_reduction", max(0, before - after) / before, Source.GRAPH, **detail)
    if not DATA_LOOPS.isdisjoint(graph.after):
        reduction = Value.unknown("graph_reduction", _DATA_LOOP)
    return {
        "graph_ops": Value.of("graph_ops", after, Source.GRAPH, **detail),
        "graph_reduction": reduction,
    }


def _grappler_text(graph: StepGraph) -> str:
    before, after = sum(graph.before.values()), sum(graph.after.values())
    if after <= before:
        most = Counter(graph.after).most_common(_SHOWN)
        return f"{before} ops before Grappler, {after} after; most: " + ", ".join(
            f"{op_type} ×{count}" for op_type, count in most
        )
    added = (Counter(graph.after) - Counter(graph.before)).most_common(_SHOWN)
    return f"Grappler added {after - before} ops to {before}: " + ", ".join(
        f"{op_type} +{count}" for op_type, count in added
    )


def _coverage(
    graph: StepGraph,
    eager: EagerOps,
    n_ran: int | None,
    in_keras: bool,
) -> Value:
    if n_ran is not None and n_ran < graph.n_clusters:
        why = _FELL_BACK.format(n=graph.n_clusters - n_ran, of=graph.n_clusters)
        return Value.unknown("xla_coverage", why)
    outside = outside_xla(graph, eager)
    n_inside, n_outside = sum(graph.inside.values()), sum(one.n_ops for one in outside)
    types = _types(graph, eager)
    if not n_inside + n_outside:
        return Value.unknown("xla_coverage", _NOTHING).changed(detail=types)
    cause = outside_cause(outside, graph, in_keras) if outside else {}
    detail = {"n_inside": n_inside, "n_outside": n_outside, **types, **cause}
    return Value.of("xla_coverage", n_inside / (n_inside + n_outside), Source.GRAPH, **detail)


def outside_cause(
    outside: Sequence[Outside], graph: StepGraph, in_keras: bool = False
) -> dict[str, str]:
    """Return `where` and `try` for ops outside XLA, those that it cannot compile first."""
    shown = []
    for one in outside[:_SHOWN]:
        number, place = f" ×{one.n_ops}" if one.n_ops > 1 else "", _place(one, graph, in_keras)
        shown.append(f"{one.op_type or one.op}{number} ({one.why}) {place}".rstrip())
    left = sum(one.n_ops for one in outside[_SHOWN:])
    where = f"outside XLA: {and_more(shown, _SHOWN, '; ', left)}"
    return {"where": where, "try": _INTO_XLA[outside[0].why]}


def _place(outside: Outside, graph: StepGraph, in_keras: bool) -> str:
    """Return `at` the user's line of ops, or for those of a loop of Keras `in` their layers."""
    # the names of ops have their layers
    if in_keras and outside.line in (None, line_of_fit(op.line for op in graph.outside)):
        alike = (outside.op_type, outside.line, outside.why)
        names = [op.name for op in graph.outside if (op.op_type, op.line, op.why) == alike]
        layers = dict.fromkeys(name.removeprefix(CALL).rpartition("/")[0] for name in names)
        if any(layers):
            return f"in {and_more(list(filter(None, layers)), _LAYERS)}"
    return f"at {outside.line}" if outside.line else ""


def _types(graph: StepGraph, eager: EagerOps) -> dict[str, dict[str, int]]:
    """Return compute nodes by type `inside` and `outside` XLA, those in fused nodes one by one."""
    outside = Counter[str]()
    for op in graph.outside:
        outside.update(op.fused or (op.op_type,))
    for op_type, _, count in eager:
        if _is_compute(op_type):
            outside[op_type] += count
    return {"inside": dict(graph.inside), "outside": dict(outside)}


def _type_table(graph: StepGraph) -> Table:
    def order(op_type: str) -> tuple[int, int, str]:
        before, after = graph.before.get(op_type, 0), graph.after.get(op_type, 0)
        return -abs(before - after), -before, op_type

    return Table.of_each(
        "ops by type",
        sorted({*graph.before, *graph.after}, key=order),
        [
            (Column("type", "type"), lambda op_type: op_type),
            (Column("before", "before Grappler", COUNT), lambda one: graph.before.get(one, 0)),
            (Column("after", "after", COUNT), lambda one: graph.after.get(one, 0)),
            (Column("line", "line of one"), graph.lines.get),
        ],
        limit=_MOST_TYPES,
    )


def _outside_table(outside: Sequence[Outside]) -> Table:
    return Table.of_each(
        "outside XLA",
        outside,
        [
            (Column("op", "op"), lambda one: one.op),
            (Column("type", "type"), lambda one: one.op_type),
            (Column("line", "line"), lambda one: one.line),
            (Column("why", "why"), lambda one: one.why),
            (Column("ops", "ops", COUNT), lambda one: one.n_ops),
        ],
    )


def optimizer_table(without: Mapping[str, int]) -> Table:
    """Tabulate passes by the ops that each removes; `without` are those left, under "" with all."""
    with_all = without.get("", 0)
    removed = {option: n_ops - with_all for option, n_ops in without.items() if n_ops != with_all}
    return Table.of_each(
        f"Grappler's optimisers, offline: {with_all} ops with all",
        sorted(removed, key=lambda option: (-removed[option], option)),
        [
            (Column("optimiser", "optimiser"), lambda option: OPTIMIZERS.get(option, option)),
            (Column("option", "option"), lambda option: option),
            (Column("ops_without_it", "ops without it", COUNT), lambda option: without[option]),
            (Column("removed_by_it", "removed by it", COUNT), lambda option: removed[option]),
        ],
    )


class Made(NamedTuple):
    """What stands out in the programs of a step."""

    where: str = ""
    """As in `, 1000 dot at model.py:12`; empty if nothing stands out."""
    remedy: str = ""
    """What to do about it."""


def made_of(evidence: Evidence) -> Made:
    """Return what stands out in the step's programs: large constants, or an op that repeats."""
    return _of_programs(evidence) if evidence.framework == JAX else _of_graph(evidence)


def line_of_fit(lines: Iterable[str | None]) -> str | None:
    """Return the line that made most ops of a Keras loop: that of `fit`, which tells no layer."""
    counts = Counter(line for line in lines if line)
    return max(counts, key=lambda line: counts[line], default=None)


def scope_of(name: str) -> str:
    """Return the layer or optimizer in an op's name, empty without one."""
    match = _SCOPE.match(_CALLED.sub("", name, count=1))
    return match[1] if match else ""


def _of_graph(evidence: Evidence) -> Made:
    ops = evidence.code.ops
    constants = [(_bytes(op), _text(op), op.line) for op in ops if op.op_type == "Const"]
    return _constants(constants) or _repeated_in(ops)


def _with_loops(values: dict[str, Value], ops: Sequence[OpNode]) -> dict[str, Value]:
    """Say of graph_ops which op a loop of Python put into the graph again and again."""
    number, made = values["graph_ops"], _repeated_in(ops)
    if number.number is None or not made.where:
        return values
    detail = {"where": f"{number.detail['where']}{made.where}", "try": made.remedy}
    return values | {"graph_ops": number.changed(detail={**number.detail, **detail})}


def _repeated_in(ops: Sequence[OpNode]) -> Made:
    """Name the op that is most often in a graph, if that is very often."""
    made = [(op.op_type, scope_of(op.name), op.line) for op in ops if computes(op.op_type)]
    # an optimizer, too, makes its ops once for each variable, and assigns it
    assigned = Counter(scope_of(op.name) for op in ops if _ASSIGNS.search(op.op_type))
    optimizers = {scope for scope, number in assigned.items() if number >= _VARIABLES}
    own = ((kind, "", None) if of in optimizers else (kind, of, at) for kind, of, at in made)
    return _repeated(own, TENSORFLOW)


def _of_programs(evidence: Evidence) -> Made:
    programs = evidence.lowered if evidence.trace is not None else Unknown("")
    if isinstance(programs, Unknown):
        return Made()
    parts = [
        part for module, _ in programs for part in with_calls_inlined(module).computations.values()
    ]
    ops = [op for part in parts for op in part.instructions.values()]
    constants = [
        (op.shape.bytes, shape_text(op.shape), source_line(op) or _reader(op, part))
        for part in parts
        for op in part.instructions.values()
        if op.opcode == "constant"
    ]
    made = ((op.opcode, "", source_line(op)) for op in ops if op.opcode not in _LAID_OUT)
    folded = next(filter(None, map(_folded, parts)), None)
    return _constants(constants) or folded or _repeated(made, JAX)


def fused_in(fusion: HloInstruction, module: HloModule) -> tuple[str, ...]:
    """Return the kinds of op that compute in a fusion, the dearest first; none of another op."""
    if fusion.opcode != "fusion":
        return ()
    parts = (module.computations[key] for key in fusion.called)
    kinds = {op.opcode for part in parts for op in part.instructions.values()} - _LAID_OUT
    rank = {kind: place for place, kind in enumerate(_DEAR)}
    return tuple(sorted(kinds, key=lambda kind: (rank.get(kind, len(rank)), kind)))


def _constants(found: Iterable[tuple[int, str, str | None]]) -> Made | None:
    """Name the largest of constants that are large together: (bytes, type, line)."""
    found = sorted(found, key=lambda one: -one[0])
    total = sum(size for size, *_ in found)
    if total < _LARGE_BYTES:
        return None
    _, text, line = found[0]
    at = f" at {line}" if line else ""
    size = format_quantity(total, BYTES)
    return Made(f", {size} of constants in it, the largest {text}{at}", _AS_ARGUMENT)


def _reader(constant: HloInstruction, part: HloComputation) -> str | None:
    """Return the user's line of the first op that reads a large constant."""
    if constant.shape.bytes < _LARGE_BYTES:
        return None
    readers = (op for op in part.instructions.values() if constant.id in op.operands)
    return next(filter(None, map(source_line, readers)), None)


def _folded(part: HloComputation) -> Made | None:
    """Name an op of constants alone, which XLA computes while it compiles."""
    fixed: dict[int, HloInstruction | None] = {}
    for key, op in part.instructions.items():
        if op.opcode == "constant":
            fixed[key] = op if op.shape.elements >= _LARGE_ELEMENTS else None
        elif op.operands and all(one in fixed for one in op.operands) and op.opcode != "while":
            large = next(filter(None, (fixed[one] for one in op.operands)), None)
            if large is not None and op.opcode not in _LAID_OUT:
                line = source_line(op)
                at = f" at {line}" if line else ""
                where = (
                    f", which computes the {op.opcode} of a constant {shape_text(large.shape)}{at}"
                )
                return Made(f"{where} as it compiles", _AS_ARGUMENT)
            fixed[key] = large
    return None


def _repeated(made: Iterable[tuple[str, str, str | None]], framework: str) -> Made:
    """Name the op that is made most often by one line or layer: (kind, layer, line)."""
    counts = Counter(made)
    often = {one: n for one, n in counts.items() if n >= _MANY and any(one[1:])}
    if sum(often.values()) < _MOST * counts.total() or not often:
        return Made()
    kind, layer, line = max(often, key=lambda one: often[one])
    place = f" at {line}" if line else ""
    of = f" of {layer}" if layer else ""
    return Made(f", {often[kind, layer, line]} {kind}{of}{place}", UNROLLED[framework])


def _bytes(op: OpNode) -> int:
    """Return the bytes of a constant, 0 if its shape or type does not tell."""
    (tensor,) = op.outputs
    if tensor.shape is None or None in tensor.shape:
        return 0
    try:
        return prod(tensor.shape) * np.dtype(tensor.dtype).itemsize  # type: ignore[arg-type]
    except TypeError:  # text, and types of 8 bits that NumPy has not
        return 0


def _text(op: OpNode) -> str:
    (tensor,) = op.outputs
    return f"{tensor.dtype}[{','.join(map(str, tensor.shape or ()))}]"
