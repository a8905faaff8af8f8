"""What Grappler's optimisers did to the step's graph, and what they left in it, as tables."""

from __future__ import annotations

from collections import Counter

from pytest_tfperf.recording import StepGraph
from pytest_tfperf.results import Table

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
"""Optimisers by their option in `tf.config.optimizer.set_experimental_options`, named as in TensorFlow's guide to Grappler."""


def optimizer_table(graph: StepGraph) -> Table:
    """The optimisers without which the graph would have another number of ops, that which removes most first."""
    with_all = graph.without.get("", 0)
    removed = {option: n_ops - with_all for option, n_ops in graph.without.items() if n_ops != with_all}
    order = sorted(removed, key=lambda option: (-removed[option], option))
    rows = [(OPTIMIZERS.get(option, option), option, graph.without[option], removed[option]) for option in order]
    columns = [("optimiser", ""), ("option", ""), ("ops without it", "count"), ("removed by it", "count")]
    return Table.of(f"Grappler's optimisers, offline: {with_all} ops with all", columns, rows)


def surviving_table(graph: StepGraph) -> Table:
    """The ops that an optimiser could have taken out, those of one type, line and reason as one."""
    found = Counter((op.op_type, op.line, op.why) for op in graph.surviving)
    first = {(op.op_type, op.line, op.why): op.name for op in reversed(graph.surviving)}
    rows = [(op_type, n_ops, line, why, first[op_type, line, why]) for (op_type, line, why), n_ops in found.most_common()]
    return Table.of("ops that Grappler left", [("type", ""), ("ops", "count"), ("line", ""), ("why", ""), ("first", "")], rows)
