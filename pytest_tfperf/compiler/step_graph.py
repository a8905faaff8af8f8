"""The graphs of the probe's step: ops before and after Grappler, and their XLA clusters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tfperf.compiler.functions import Function, Unsupported, called_by
from pytest_tfperf.compiler.probe import Probe
from pytest_tfperf.compiler.runtime_graphs import Instance, instances, ops_in
from pytest_tfperf.compiler.source_lines import lines_in, traced_ops
from pytest_tfperf.compiler.xla_coverage import autoclusters, clusters_of, inside_and_outside
from pytest_tfperf.graphs import reached
from pytest_tfperf.op_types import PYTHON_OPS, XLA_SHELLS
from pytest_tfperf.recorded_graphs import GraphOp, StepGraph
from pytest_tfperf.values import Unknown

_TRIED_OPS = 20  # of one type, until one has a line: finding a line takes 0.1 ms


@dataclass(frozen=True, slots=True)
class InspectedGraph:
    """The graphs of a step, and the functions for an inspection of Grappler's passes."""

    graph: StepGraph | Unknown
    """The graphs, or the reason why they are unknown."""
    optimized: tuple[tuple[Function, int], ...] = ()
    """The functions that Grappler optimised, and how often a step calls each."""


def inspect_graph(probe: Probe, max_seconds: float = math.inf) -> InspectedGraph:
    """
    Return the graphs of the functions called in the probe's step, or a reason why they are unknown.

    Copies of the functions are instantiated, and none is run. A node takes 0.3 to 1.1 ms, as long
    as tracing it took.

    Args:
        probe: Record of the step.
        max_seconds: Time limit, which ends it between functions.
    """
    if probe.why is not None or probe.calls.why is not None:
        return InspectedGraph(Unknown(str(probe.why or probe.calls.why)))
    try:
        return _graph_of(instances(probe, max_seconds))
    except Unsupported as error:
        return InspectedGraph(Unknown(str(error)))
    except Exception as error:  # an error of TensorFlow's must not end the user's test
        why = f"the step's graphs could not be read: {type(error).__name__}: {error}"
        return InspectedGraph(Unknown(why))


def _graph_of(runs: Sequence[Instance]) -> InspectedGraph:
    auto = autoclusters() or any(instance.clustered is not None for instance in runs)
    inside: Counter[str] = Counter()
    outside: list[GraphOp] = []
    before: Counter[str] = Counter()
    after: Counter[str] = Counter()
    lines: dict[str, str] = {}
    allocated = 0
    for instance in runs:
        types, others = inside_and_outside(instance, auto)
        inside.update({op_type: count * instance.runs for op_type, count in types.items()})
        outside += others * instance.runs
        before.update(_types(instance.before, instance.runs))
        after.update(_types(instance.after, instance.runs))
        lines = {**_lines(instance), **lines}
        allocated = max(allocated, _largest_allocation(instance))
    graph = StepGraph(
        before=before,
        after=after,
        inside=inside,
        n_clusters=len({name for instance in runs for name in clusters_of(instance).values()}),
        outside=tuple(outside),
        lines=lines,
        allocated=allocated,
    )
    optimized = tuple(
        (instance.function, instance.runs)
        for instance in runs
        if instance.function is not None and instance.unclustered is not None
    )
    return InspectedGraph(graph, optimized)


def _types(nodes: Iterable[Any], runs: int) -> Counter[str]:
    """Count the ops of each type among nodes that run several times."""
    counted = Counter(op.node.op for op in ops_in(nodes))
    return Counter({op_type: count * runs for op_type, count in counted.items()})


def _lines(instance: Instance) -> dict[str, str]:
    """Return the user's line of one op of each type, among the first few of that type."""
    line_of = lines_in(instance.graph)
    tried: Counter[str] = Counter()
    found: dict[str, str] = {}
    for op in ops_in(instance.after):
        op_type = op.node.op
        if op_type in found or tried[op_type] == _TRIED_OPS:
            continue
        tried[op_type] += 1
        if line := line_of(op.node, op.owner):
            found[op_type] = line
    return found


def _largest_allocation(instance: Instance) -> int:
    """
    Return the bytes of the largest result that an op of an instance is certain to allocate.

    An op may pass on the buffer of an input of as many bytes (forward_input_or_allocate_output in
    tensorflow/core/framework/op_kernel.h), so only results larger than each input count. What may
    not run, what is computed from constants, results of Python and those of functions do not.
    """
    graph = instance.unclustered if instance.clustered is None else instance.clustered
    if graph is None:
        return 0
    nodes, op_of = {node.name: node for node in graph.node}, traced_ops(instance.graph)
    data = {name: [ref for ref in node.input if ref[0] != "^"] for name, node in nodes.items()}

    def size(ref: str) -> int | None:
        name, _, output = ref.partition(":")
        op = op_of(nodes[name])
        if op is None:
            return _constant_size(nodes[name])
        return (
            _n_bytes(op.outputs[int(output or 0)]) if int(output or 0) < len(op.outputs) else None
        )

    largest = 0
    for name in _certain(nodes, data):
        op = op_of(nodes[name])
        if op is None or op.type != nodes[name].op or not data[name]:
            continue
        own, taken = map(_n_bytes, op.outputs), [size(ref) for ref in data[name]]
        inputs = [n for n in taken if n is not None]
        if len(inputs) == len(taken):
            largest = max([largest, *(n for n in own if n is not None and n > max(inputs))])
    return largest


def _certain(nodes: Mapping[str, Any], data: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the nodes that run in each step, and compute something else than constants."""
    from tensorflow.python.framework import op_def_registry

    sources = {
        name: [ref.removeprefix("^").partition(":")[0] for ref in node.input]
        for name, node in nodes.items()
    }
    users: dict[str, list[str]] = {}
    takers: dict[str, list[str]] = {}
    for name in nodes:
        for source in sources[name]:
            users.setdefault(source, []).append(name)
        for ref in data[name]:
            takers.setdefault(ref.partition(":")[0], []).append(name)
    definitions = {name: op_def_registry.get(node.op) for name, node in nodes.items()}
    stateful = {name for name, one in definitions.items() if one is None or one.is_stateful}
    ends = [
        name
        for name, node in nodes.items()
        if node.op == "_Retval" or (name in stateful and not takers.get(name))
    ]
    given = [name for name, node in nodes.items() if not data[name] and node.op != "Const"]
    optional = reached(
        [name for name, node in nodes.items() if node.op == "Switch"],
        lambda name: users.get(name, ()),
    )
    varies = reached([*given, *stateful], lambda name: takers.get(name, ()))
    needed = reached(ends, lambda name: sources[name])
    return {
        name
        for name in needed & varies - optional
        if nodes[name].op not in PYTHON_OPS | XLA_SHELLS and not called_by(nodes[name])
    }


def _n_bytes(tensor: Any) -> int | None:
    """Return the bytes of a tensor, None if they are not known."""
    if tensor.dtype.name in ("resource", "variant", "string"):
        return None
    n = tensor.shape.num_elements()
    return None if n is None else int(n) * int(tensor.dtype.size)


def _constant_size(node: Any) -> int | None:
    """Return the bytes of a constant that Grappler made, None of other nodes."""
    import tensorflow as tf

    if node.op != "Const":
        return None
    value = node.attr["value"].tensor
    return int(tf.TensorShape(value.tensor_shape).num_elements()) * int(
        tf.as_dtype(value.dtype).size
    )
