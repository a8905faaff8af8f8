"""The graphs of a step, from what the probe saw of it: what Grappler was given and left, and what XLA compiles of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from pytest_tfperf.compiler.compilable_parts import Cannot
from pytest_tfperf.compiler.functions import reached_from
from pytest_tfperf.compiler.grappler_ablation import optimizers_left_out
from pytest_tfperf.compiler.grappler_leftovers import surviving
from pytest_tfperf.compiler.instances import Instance, instances, ops_in
from pytest_tfperf.compiler.probe import Probe
from pytest_tfperf.compiler.xla_coverage import autoclusters, clusters_in
from pytest_tfperf.recording import Cluster, GraphOp, StepGraph

_LARGE = (
    "the step's functions hold {:,} nodes, and to optimise them once more takes long; a limit on graph_ops or xla_coverage "
    "(max_graph_ops=) asks for it"
)
UNASKED_NODES = 5_000
"""Nodes of a step whose graphs are had within about two seconds: 0.4 ms each, measured with Keras models."""


def step_graph(probe: Probe, asked: bool = False, max_nodes: int | None = None) -> StepGraph | str:
    """
    The graphs of the functions that Python called in the probe's step, or why they are not known.

    Copies of the functions are instantiated for it, and none is run. What each optimiser contributed is looked for in larger graphs
    too if it was `asked` for. Of a step whose functions hold more than `max_nodes` nodes nothing is looked at.
    """
    if probe.why is not None or probe.calls.why is not None:
        return str(probe.why or probe.calls.why)
    try:
        n_nodes = sum(
            len(one.node_def)
            for one in reached_from(function.name for function in probe.calls.functions.values())
        )
        if max_nodes is not None and n_nodes > max_nodes:
            return _LARGE.format(n_nodes)
        return _graph_of(instances(probe), asked)
    except Cannot as error:
        return str(error)
    except Exception as error:  # whatever TensorFlow says must not end the user's test
        return f"the step's graphs could not be read: {type(error).__name__}: {error}"


def _graph_of(found: Sequence[Instance], asked: bool) -> StepGraph:
    auto = autoclusters() or any(instance.clustered is not None for instance in found)
    clusters: list[Cluster] = []
    outside: list[GraphOp] = []
    for instance in found:
        inside, others = clusters_in(instance, auto)
        clusters += inside * instance.runs
        outside += others * instance.runs
    before: Counter[str] = Counter()
    after: Counter[str] = Counter()
    for instance in found:
        before.update(_types(instance.given, instance.runs))
        after.update(_types(instance.left, instance.runs))
    optimized = [
        (one.function, one.unclustered, one.runs)
        for one in found
        if one.function is not None and one.unclustered is not None
    ]
    return StepGraph(
        before=before,
        after=after,
        clusters=tuple(clusters),
        outside=tuple(outside),
        surviving=surviving((function, graph) for function, graph, _ in optimized),
        without=optimizers_left_out([(function, runs) for function, _, runs in optimized], asked),
    )


def _types(nodes: Iterable[Any], runs: int) -> Counter[str]:
    """How many ops of each type these nodes hold, in so many runs."""
    counted = Counter(op.node.op for op in ops_in(nodes))
    return Counter({op_type: count * runs for op_type, count in counted.items()})
