"""Graphs of a step: ops before and after Grappler, and those that XLA compiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pytest_tfperf.facts.executions import short_module
from pytest_tfperf.facts.host_activity import JAX, PYTORCH
from pytest_tfperf.metrics.compiler_causes import outside_cause
from pytest_tfperf.metrics.evidence import UNTRACED, Evidence, Findings
from pytest_tfperf.metrics.step_programs import line_of_fit, with_loops
from pytest_tfperf.op_types import DATA_LOOPS, EAGER, WHY_OUTSIDE, computes
from pytest_tfperf.quantities import COUNT
from pytest_tfperf.recorded_graphs import CALL, StepGraph
from pytest_tfperf.text import and_more
from pytest_tfperf.values import Column, Source, Table, Unknown, Value

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


class Outside(NamedTuple):
    """Ops of one type outside XLA, which one line of the user's made."""

    op: str
    """Name of one of them."""
    op_type: str
    """Their type."""
    line: str | None
    """The user's line."""
    why: str
    """The reason why they are outside."""
    n_ops: int
    """Number of ops."""


def analyse(evidence: Evidence) -> Findings:
    """Find what Grappler and XLA made of the step's graphs."""
    if evidence.framework in _WITHOUT_GRAPH:
        why = _WITHOUT_GRAPH[evidence.framework]
        names = ("graph_ops", "graph_reduction", "xla_coverage")
        values = {name: Value.unknown(name, why) for name in names}
        if evidence.recording.framework == JAX:
            values["xla_coverage"] = replace(values["xla_coverage"], detail={"outside": {}})
        return Findings(values=values)
    graph, eager = evidence.code.graph, evidence.recording.eager
    n_ran = None if isinstance(graph, Unknown) else _clusters_that_ran(evidence)
    in_keras = evidence.trace is not None and evidence.launched.in_keras
    values = graph_values(graph, eager, n_ran, in_keras)
    return Findings(values=with_loops(values, evidence), tables=graph_tables(graph, eager))


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
    graph: StepGraph | Unknown,
    eager: EagerOps,
    n_ran: int | None,
    in_keras: bool = False,
) -> dict[str, Value]:
    """
    Return graph_ops, graph_reduction and xla_coverage.

    Args:
        graph: The step's graphs.
        eager: (type, line, count) of the ops that Python ran.
        n_ran: Number of auto-clusters that the traced steps ran, None if it is not known.
        in_keras: True if the steps are those of a loop of Keras.
    """
    if isinstance(graph, Unknown):
        why = graph.why or _NOT_SEEN
        return {
            name: Value.unknown(name, why)
            for name in ("graph_ops", "graph_reduction", "xla_coverage")
        }
    return {
        **_grappler_values(graph),
        "xla_coverage": _coverage(graph, eager, n_ran, in_keras),
    }


def graph_tables(graph: StepGraph | Unknown, eager: EagerOps) -> dict[str, Table]:
    """Return the tables of ops by type before and after Grappler, and of ops outside XLA."""
    if isinstance(graph, Unknown):
        return {}
    tables = {
        "graph": _type_table(graph),
        "outside_xla": _outside_table(outside_xla(graph, eager)),
    }
    return {key: table for key, table in tables.items() if table.rows}


def outside_xla(graph: StepGraph, eager: EagerOps) -> list[Outside]:
    """
    Return the compute nodes outside XLA.

    Ops that XLA cannot compile come first, then those that are most frequent.

    Args:
        graph: The step's graphs.
        eager: (type, line, count) of the ops that Python ran.
    """
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
    """
    Return whether an op of this type, run by Python, computes.

    Functions are named `__inference_…`, and their ops are in the graphs.
    """
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
        return replace(Value.unknown("xla_coverage", _NOTHING), detail=types)
    cause = (
        outside_cause(
            [
                (one.op_type or one.op, _place(one, graph, in_keras), one.why, one.n_ops)
                for one in outside
            ]
        )
        if outside
        else {}
    )
    detail = {"n_inside": n_inside, "n_outside": n_outside, **types, **cause}
    return Value.of("xla_coverage", n_inside / (n_inside + n_outside), Source.GRAPH, **detail)


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
    """
    Return the compute nodes by type `inside` and `outside` XLA.

    A node that Grappler fused counts as the ops in it, since XLA is given these.
    """
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


def optimizer_table(without: Mapping[str, int]) -> Table:
    """
    Return the passes that change the number of ops; the one that removes most comes first.

    Args:
        without: Ops that remain when one pass is left out, by its option; under "" with all.
    """
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
