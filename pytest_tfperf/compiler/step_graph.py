"""The graphs of the probe's step: ops before and after Grappler, and their XLA clusters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from pytest_tfperf.compiler.functions import Unsupported, reached_from
from pytest_tfperf.compiler.grappler_ablation import optimizers_left_out
from pytest_tfperf.compiler.grappler_leftovers import leftovers
from pytest_tfperf.compiler.instances import Instance, instances, ops_in
from pytest_tfperf.compiler.probe import Probe
from pytest_tfperf.compiler.xla_coverage import autoclusters, clusters_in
from pytest_tfperf.recording import Cluster, GraphOp, StepGraph
from pytest_tfperf.values import Unknown

_LARGE = (
    "the step's functions hold {:,} nodes, and optimising them again takes long; a limit on "
    "graph_ops or xla_coverage (max_graph_ops=) asks for it"
)
UNASKED_NODES = 5_000
"""
Most nodes of a step whose graphs are made by default, within about two seconds.

Measured: 0.4 ms a node with Keras models.
"""


def step_graph(
    probe: Probe, asked: bool = False, max_nodes: int | None = None
) -> StepGraph | Unknown:
    """
    Return the graphs of the functions called in the probe's step, or a reason why they are unknown.

    Copies of the functions are instantiated, and none is run.

    Args:
        probe: Record of the step.
        asked: Whether to run the Grappler ablation in larger graphs too.
        max_nodes: Largest number of nodes in the step's functions; None is any number.
    """
    if probe.why is not None or probe.calls.why is not None:
        return Unknown(str(probe.why or probe.calls.why))
    try:
        if max_nodes is not None:
            names = [function.name for function in probe.calls.functions.values()]
            n_nodes = sum(len(definition.node_def) for definition in reached_from(names))
            if n_nodes > max_nodes:
                return Unknown(_LARGE.format(n_nodes))
        return _graph_of(instances(probe), asked)
    except Unsupported as error:
        return Unknown(str(error))
    except Exception as error:  # an error of TensorFlow's must not end the user's test
        return Unknown(f"the step's graphs could not be read: {type(error).__name__}: {error}")


def _graph_of(found: Sequence[Instance], asked: bool) -> StepGraph:
    auto = autoclusters() or any(instance.clustered is not None for instance in found)
    clusters: list[Cluster] = []
    outside: list[GraphOp] = []
    before: Counter[str] = Counter()
    after: Counter[str] = Counter()
    for instance in found:
        inside, others = clusters_in(instance, auto)
        clusters += inside * instance.runs
        outside += others * instance.runs
        before.update(_types(instance.before, instance.runs))
        after.update(_types(instance.after, instance.runs))
    optimized = [
        (instance.function, instance.unclustered, instance.runs)
        for instance in found
        if instance.function is not None and instance.unclustered is not None
    ]
    return StepGraph(
        before=before,
        after=after,
        clusters=tuple(clusters),
        outside=tuple(outside),
        surviving=leftovers((function, graph) for function, graph, _ in optimized),
        without=optimizers_left_out([(function, runs) for function, _, runs in optimized], asked),
    )


def _types(nodes: Iterable[Any], runs: int) -> Counter[str]:
    """Count the ops of each type among nodes that run several times."""
    counted = Counter(op.node.op for op in ops_in(nodes))
    return Counter({op_type: count * runs for op_type, count in counted.items()})
