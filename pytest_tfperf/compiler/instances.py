"""The functions and Session runs of a step as TensorFlow's runtime instantiated them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from pytest_tfperf.compiler.functions import (
    Function,
    Unsupported,
    called_by,
    definition_of,
    must_compile,
)
from pytest_tfperf.compiler.instantiation import instantiated, unclustered
from pytest_tfperf.compiler.probe import Probe, SessionRun
from pytest_tfperf.op_types import TRANSFERS, XLA_SHELLS, is_op, is_pipeline

# The kernel of an op is chosen after Grappler (mkl_layout_pass.cc).
_ONEDNN = re.compile(r"^_Mkl(Native)?(Fused)?")

# Pivots and inputs of branches, control nodes of loops: Graph::NewName.
_MADE_BY_LOWERING = re.compile(r"/_\d+$")
_MADE_BY_CLUSTERING = re.compile(r"/clone_\d+$")  # clone_constants_for_better_clustering.cc
_DEEPEST = 50  # nested calls; TensorFlow runs no endless recursion


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A function that Python called in a step, or the ops of a Session's run."""

    runs: int
    """Number of runs in the step."""
    before: Sequence[Any]
    """Nodes that Grappler received."""
    after: Sequence[Any]
    """Nodes after Grappler, with nothing clustered; equal to `before` for jit_compile=True."""
    graph: Any
    """Python graph, which holds the user's lines."""
    function: Function | None = None
    """The function, None for a Session's run; under a tape the form with more results."""
    unclustered: Any = None
    """GraphDef of `after`."""
    clustered: Any = None
    """GraphDef after auto-clustering, if that found clusters."""

    @property
    def compiled(self) -> Function | None:
        """The function if XLA compiles it as a whole."""
        return self.function if self.unclustered is None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceNode:
    """A node that counts as an op."""

    name: str
    """Its name after the names of its callers, separated by slashes."""
    node: Any
    """NodeDef."""
    top: str
    """Name of the node in the graph itself that it is, or belongs to."""
    owner: str | None = None
    """Name of the function whose body holds it."""
    compiled: tuple[str, str] | None = None
    """The call and the function around it with jit_compile=True."""


def instances(probe: Probe, max_seconds: float = math.inf) -> list[Instance]:
    """
    Return the functions called in the probe's step, by their first calls, and the Session runs.

    Args:
        probe: Record of the step.
        max_seconds: Time limit, checked before each function.

    Raises:
        Unsupported: If the graphs of one of them are not available, or that takes too long.
    """
    n_runs: Counter[str] = Counter()
    for (name, _), count in probe.eager.items():
        n_runs[name] += count
    runs: dict[str, tuple[Function, int]] = {}
    for function, count in _called(probe):
        variants = [
            (variant, n_runs[variant.name])
            for variant in _variants(function)
            if n_runs[variant.name]
        ]
        # Calls in another thread are not among the single ops.
        runs |= {variant.name: (variant, n) for variant, n in variants or [(function, count)]}
    deadline = perf_counter() + max_seconds
    found = []
    for function, n in runs.values():
        if perf_counter() > deadline:
            raise Unsupported(
                "reading the graphs of its functions takes longer than "
                f"{max_seconds:g} s (tfperf_max_seconds)"
            )
        found.append(_instance(function, n))
    return found + [_session_instance(run) for run in probe.sessions]


def ops_in(nodes: Iterable[Any]) -> Iterator[InstanceNode]:
    """
    Yield the ops of a graph and of its callees, once for each call.

    Bodies of loops and branches count once, also of loops over a dataset. Arguments, results,
    calls, control flow itself and the functions of an input pipeline do not count. A callee has
    the ops from before Grappler: it inlines most functions, and its changes to the others are not
    visible.
    """
    for node in nodes:
        yield from _ops_of(node, InstanceNode(name=node.name, node=node, top=node.name), _DEEPEST)


def has_clusters(nodes: Iterable[Any]) -> bool:
    """Return whether nodes of auto-clusters are among these."""
    return any(node.op in XLA_SHELLS for node in nodes)


def counts(node: Any) -> bool:
    """Return whether a node is an op of the user's code, or of Grappler."""
    if not is_op(node.op) or node.op in XLA_SHELLS | TRANSFERS or node.op.startswith("__"):
        return False
    made_by = {
        "Identity": _MADE_BY_LOWERING,
        "IdentityN": _MADE_BY_LOWERING,
        "Const": _MADE_BY_CLUSTERING,
    }.get(node.op)
    return made_by is None or not made_by.search(node.name)


def _ops_of(node: Any, op: InstanceNode, depth: int) -> Iterator[InstanceNode]:
    if counts(node):
        yield op
    if is_pipeline(node.op) or not depth:
        return
    for name in called_by(node):
        definition = definition_of(name)
        compiled = op.compiled or (
            (op.name, name) if must_compile(node) or must_compile(definition) else None
        )
        for inner in definition.node_def:
            inside = replace(
                op, name=f"{op.name}/{inner.name}", node=inner, owner=name, compiled=compiled
            )
            yield from _ops_of(inner, inside, depth - 1)


def _called(probe: Probe) -> Iterator[tuple[Function, int]]:
    """Yield the functions called in the probe's step, and how often each was called."""
    counts = Counter(
        {
            key: count * times
            for (_, called), times in probe.calls.steps.items()
            for key, count in called
        }
    )
    yield from (
        (function, counts[key]) for key, function in probe.calls.functions.items() if counts[key]
    )


def _instance(function: Function, runs: int) -> Instance:
    definition, graph = definition_of(function.name), getattr(function.keep, "graph", None)
    before = definition.node_def
    if must_compile(definition):
        return Instance(runs=runs, before=before, after=before, graph=graph, function=function)
    optimized = instantiated(function).post_optimization_graph
    clustered = optimized if has_clusters(optimized.node) else None
    after = optimized if clustered is None else unclustered(function).post_optimization_graph
    return Instance(
        runs=runs,
        before=before,
        after=after.node,
        graph=graph,
        function=function,
        unclustered=after,
        clustered=clustered,
    )


def _session_instance(run: SessionRun) -> Instance:
    after = [node for partition in run.partitions for node in partition.node]
    for node in after:
        node.op = _ONEDNN.sub(lambda match: "_Fused" if match[2] else "", node.op)
    if has_clusters(after):
        raise Unsupported(
            "the step runs a tf.compat.v1.Session with auto-clusters, and a Session does not show "
            "their contents"
        )
    return Instance(runs=1, before=[op.node_def for op in run.ops], after=after, graph=run.graph)


def _variants(function: Function) -> list[Function]:
    """Return a function and its forms that also return what a tape needs."""
    # private: functions to be run under a tape
    forms_of = [
        getattr(function.keep, name, {})
        for name in ("_first_order_tape_functions", "_higher_order_tape_functions")
    ]
    forward = [getattr(form, "_forward", None) for forms in forms_of for form in forms.values()]
    return [
        function,
        *(replace(function, name=form.name.decode()) for form in forward if form is not None),
    ]
