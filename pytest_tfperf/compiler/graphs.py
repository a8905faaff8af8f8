"""The graphs of a step, from what the probe saw of it: what Grappler was given and left, and what XLA compiles of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from pytest_tfperf.compiler.instances import Bodies, Instance, definition_body, instances, ops_in, optimized_body
from pytest_tfperf.compiler.optimizers import optimizers_left_out
from pytest_tfperf.compiler.partition import Cannot
from pytest_tfperf.compiler.probe import Probe
from pytest_tfperf.compiler.survivors import surviving
from pytest_tfperf.compiler.xla import autoclusters, clusters_in
from pytest_tfperf.recording import Cluster, GraphOp, StepGraph


def step_graph(probe: Probe, asked: bool = False) -> StepGraph | str:
    """
    The graphs of the functions that Python called in the probe's step, or why they are not known.

    Functions may be instantiated again for it, which clears the kernel cache; none is run. What each optimiser contributed is
    looked for in larger graphs too if it was `asked` for.
    """
    if probe.why is not None or probe.calls.why is not None:
        return str(probe.why or probe.calls.why)
    try:
        return _graph_of(instances(probe), optimized_body(probe.graphs), asked)
    except Cannot as error:
        return str(error)
    except Exception as error:  # whatever TensorFlow says must not end the user's test
        return f"the step's graphs could not be read: {type(error).__name__}: {error}"


def _graph_of(found: Sequence[Instance], body: Bodies, asked: bool) -> StepGraph:
    auto = autoclusters() or any(instance.clustered is not None for instance in found)
    clusters: list[Cluster] = []
    outside: list[GraphOp] = []
    for instance in found:
        inside, others = clusters_in(instance, body, auto)
        clusters += inside * instance.runs
        outside += others * instance.runs
    before: Counter[str] = Counter()
    after: Counter[str] = Counter()
    for instance in found:
        before.update(_types(instance, instance.definition.node_def, definition_body))
        after.update(_types(instance, instance.optimized, body))
    optimized = [instance for instance in found if instance.graphs is not None]
    return StepGraph(
        before=before,
        after=after,
        clusters=tuple(clusters),
        outside=tuple(outside),
        surviving=surviving((instance.function, instance.graphs.post_optimization_graph) for instance in optimized),
        without=optimizers_left_out([(instance.function, instance.runs) for instance in optimized], asked),
    )


def _types(instance: Instance, nodes: Iterable[Any], body: Bodies) -> Counter[str]:
    """How many ops of each type these nodes hold, in all runs of a function."""
    counted = Counter(op.node.op for op in ops_in(nodes, body))
    return Counter({op_type: count * instance.runs for op_type, count in counted.items()})
