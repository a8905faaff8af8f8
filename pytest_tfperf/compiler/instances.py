"""What Python ran in a step, as TensorFlow's runtime instantiated it, and the ops in it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_tfperf.compiler.compilable_parts import Cannot, Function
from pytest_tfperf.compiler.functions import called_by, definition_of, must_compile
from pytest_tfperf.compiler.instantiation import instantiated, unclustered
from pytest_tfperf.compiler.probe import Probe
from pytest_tfperf.compiler.session_runs import SessionRun
from pytest_tfperf.op_types import TRANSFERS, XLA_SHELLS, is_op

_ONEDNN = re.compile(
    r"^_Mkl(Native)?(Fused)?"
)  # what kernel runs an op is decided after Grappler (mkl_layout_pass.cc)
_MADE_BY_LOWERING = re.compile(
    r"/_\d+$"
)  # pivots and inputs of branches, control nodes of loops: Graph::NewName
_MADE_BY_CLUSTERING = re.compile(r"/clone_\d+$")  # clone_constants_for_better_clustering.cc
_DEEPEST = 50  # calls within calls; TensorFlow runs no function that calls itself without end


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """
    What Python ran in a step, `runs` times: a function that it called, or the ops of a Session's run, of which there is no function.

    `given` are the nodes that Grappler was given, `left` those that it left, with nothing clustered; equal for what XLA compiles as
    a whole (jit_compile=True), which Grappler does not see. Under a tape the function that ran is one that gives more results.
    `unclustered` is the GraphDef of `left`, `clustered` the same after auto-clustering, where that found clusters. `graph` is the
    Python graph, which knows the user's lines.
    """

    runs: int
    given: Sequence[Any]
    left: Sequence[Any]
    graph: Any
    function: Function | None = None
    unclustered: Any = None
    clustered: Any = None

    @property
    def compiled(self) -> Function | None:
        """The function that XLA compiles as a whole."""
        return self.function if self.unclustered is None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceNode:
    """
    A node that counts as an op, with the names of its callers before its own; `top` is the node in the graph itself that it is or
    belongs to, `owner` the function whose body it is in, and `compiled` the call and the function that the user asked XLA to compile.
    """

    name: str
    node: Any
    top: str
    owner: str | None = None
    compiled: tuple[str, str] | None = None


def instances(probe: Probe) -> list[Instance]:
    """
    The functions that Python called while the probe's step ran, in the order of their first calls, and the runs of Sessions.

    Raises:
        Cannot: If the graphs of one of them cannot be had.
    """
    seen: Counter[str] = Counter()
    for (name, _), count in probe.eager.items():
        seen[name] += count
    runs: dict[str, tuple[Function, int]] = {}
    for function, count in _called(probe):
        variants = [
            (variant, seen[variant.name]) for variant in _variants(function) if seen[variant.name]
        ]
        runs |= {
            variant.name: (variant, n) for variant, n in variants or [(function, count)]
        }  # or: called in another thread
    return [_instance(function, n) for function, n in runs.values()] + [
        _session_instance(run) for run in probe.sessions
    ]


def ops_in(nodes: Iterable[Any]) -> Iterator[InstanceNode]:
    """
    The ops of a graph, and of what it calls, once for each call; bodies of loops and branches once.

    No arguments, results, calls, shells of control flow, and nothing of tf.data's functions. What is called has the ops that it was
    given: Grappler inlines functions, and what it does to the few that stay apart is not seen.
    """
    for node in nodes:
        yield from _ops_of(node, InstanceNode(name=node.name, node=node, top=node.name), _DEEPEST)


def has_clusters(nodes: Iterable[Any]) -> bool:
    """Whether there are shells of auto-clusters among nodes."""
    return any(node.op in XLA_SHELLS for node in nodes)


def counts(node: Any) -> bool:
    """Whether a node is an op that the user's code, or Grappler, made."""
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
    if "Dataset" in node.op or not depth:
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
    """The functions called in the probe's step, and how often."""
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
    given, graph = definition_of(function.name), getattr(function.keep, "graph", None)
    if must_compile(given):
        return Instance(
            runs=runs, given=given.node_def, left=given.node_def, graph=graph, function=function
        )
    optimized = instantiated(function).post_optimization_graph
    clustered = optimized if has_clusters(optimized.node) else None
    left = optimized if clustered is None else unclustered(function).post_optimization_graph
    return Instance(
        runs=runs,
        given=given.node_def,
        left=left.node,
        graph=graph,
        function=function,
        unclustered=left,
        clustered=clustered,
    )


def _session_instance(run: SessionRun) -> Instance:
    left = [node for partition in run.partitions for node in partition.node]
    for node in left:
        node.op = _ONEDNN.sub(lambda match: "_Fused" if match[2] else "", node.op)
    if has_clusters(left):
        raise Cannot(
            "the step runs a tf.compat.v1.Session with auto-clusters, and a Session does not show what is in them"
        )
    return Instance(runs=1, given=[op.node_def for op in run.ops], left=left, graph=run.graph)


def _variants(function: Function) -> list[Function]:
    """A function, and its forms that give what a tape needs besides."""
    # private: functions to be run under a tape
    made = [
        getattr(function.keep, name, {})
        for name in ("_first_order_tape_functions", "_higher_order_tape_functions")
    ]
    forward = [getattr(form, "_forward", None) for forms in made for form in forms.values()]
    return [
        function,
        *(replace(function, name=form.name.decode()) for form in forward if form is not None),
    ]
