"""The functions that Python called in a step, as TensorFlow's runtime instantiated them, and the ops in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_tfperf.compiler.definitions import called_by, definition_of, must_compile
from pytest_tfperf.compiler.instantiation import instantiated, names_of, shows, unclustered
from pytest_tfperf.compiler.op_counts import is_op
from pytest_tfperf.compiler.partition import Function
from pytest_tfperf.compiler.probe import Probe

_SHELLS = frozenset({"_XlaCompile", "_XlaRun", "_XlaMerge"})
_MADE_BY_LOWERING = re.compile(r"/_\d+$")  # pivots and inputs of branches, control nodes of loops: Graph::NewName
_MADE_BY_CLUSTERING = re.compile(r"/clone_\d+$")  # clone_constants_for_better_clustering.cc
_DEEPEST = 50  # calls within calls; TensorFlow runs no function that calls itself without end


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """
    A function that Python called in a step, and how often.

    Under a tape the function that ran gives more results, and has another name. `graphs` are its FunctionGraphs with nothing
    clustered; None if XLA compiles it as a whole (jit_compile=True). `clustered` is the GraphDef after auto-clustering, where
    that found clusters.
    """

    function: Function
    runs: int
    graphs: Any = None
    clustered: Any = None

    @property
    def definition(self) -> Any:
        """The FunctionDef that Grappler was given."""
        return definition_of(self.function.name)

    @property
    def optimized(self) -> Any:
        """The nodes that Grappler left, which does not touch what XLA compiles as a whole."""
        return self.definition.node_def if self.graphs is None else self.graphs.post_optimization_graph.node


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """
    A node that counts as an op, with the names of its callers before its own; `top` is the node in the graph itself that it is or
    belongs to, `owner` the function whose body it is in, and `compiled` the call and the function that the user asked XLA to compile.
    """

    name: str
    node: Any
    top: str
    owner: str | None = None
    compiled: tuple[str, str] | None = None


Bodies = Callable[[str], Sequence[Any]]
"""The nodes in a function's body, by its name."""


def instances(probe: Probe) -> list[Instance]:
    """
    The functions that Python called while the probe's step ran, in the order of their first calls.

    Raises:
        Cannot: If the graphs of one of them cannot be had.
    """
    runs: Counter[Any] = Counter()
    for (_, called), times in probe.calls.steps.items():
        for key, count in called:
            runs[key] += count * times
    return [_instance(function, runs[key], probe.graphs) for key, function in probe.calls.functions.items() if runs[key]]


def ops_in(nodes: Iterable[Any], body: Bodies) -> Iterator[Op]:
    """
    The ops of a graph, and of what it calls, once for each call; bodies of loops and branches once.

    No arguments, results, calls, shells of control flow, and nothing of tf.data's functions.
    """
    for node in nodes:
        yield from _ops_of(node, body, Op(name=node.name, node=node, top=node.name), _DEEPEST)


def definition_body(name: str) -> Sequence[Any]:
    """As a function was given to the runtime."""
    nodes: Sequence[Any] = definition_of(name).node_def
    return nodes


def optimized_body(entries: Sequence[Any]) -> Bodies:
    """As Grappler left a function, if these FunctionGraphs show it: it is instantiated apart where it is not inlined."""

    def body(name: str) -> Sequence[Any]:
        definition = definition_of(name)
        seen = [entry.post_optimization_graph for entry in entries if shows(entry, definition)] if not must_compile(definition) else []
        nodes: Sequence[Any] = seen[-1].node if seen and not has_clusters(seen[-1]) else definition.node_def
        return nodes

    return body


def has_clusters(graph: Any) -> bool:
    """Whether there are shells of auto-clusters in a GraphDef."""
    return any(node.op in _SHELLS for node in graph.node)


def counts(node: Any) -> bool:
    """Whether a node is an op that the user's code, or Grappler, made."""
    if not is_op(node.op) or node.op in _SHELLS or node.op.startswith("__"):
        return False
    made_by = {"Identity": _MADE_BY_LOWERING, "IdentityN": _MADE_BY_LOWERING, "Const": _MADE_BY_CLUSTERING}.get(node.op)
    return made_by is None or not made_by.search(node.name)


def _ops_of(node: Any, body: Bodies, op: Op, depth: int) -> Iterator[Op]:
    if counts(node):
        yield op
    if "Dataset" in node.op or not depth:
        return
    for name in called_by(node):
        compiled = op.compiled or ((op.name, name) if must_compile(node) or must_compile(definition_of(name)) else None)
        for inner in body(name):
            inside = replace(op, name=f"{op.name}/{inner.name}", node=inner, owner=name, compiled=compiled)
            yield from _ops_of(inner, body, inside, depth - 1)


def _instance(function: Function, runs: int, entries: Sequence[Any]) -> Instance:
    if must_compile(definition_of(function.name)):
        return Instance(function=function, runs=runs)
    ran, graphs = _seen([replace(function, name=name) for name in _names(function)], entries)
    graphs = graphs or instantiated(ran)
    if not has_clusters(graphs.post_optimization_graph):
        return Instance(function=ran, runs=runs, graphs=graphs)
    return Instance(function=ran, runs=runs, graphs=unclustered(ran), clustered=graphs.post_optimization_graph)


def _seen(variants: Sequence[Function], entries: Sequence[Any]) -> tuple[Function, Any]:
    """The variant of a function that ran, and its FunctionGraphs; None if what ran within the function stands among its nodes."""
    definitions = [definition_of(variant.name) for variant in variants]
    for entry in reversed(entries):
        for variant, definition in zip(variants, definitions, strict=True):
            if shows(entry, definition):
                return variant, entry
    for entry in entries:
        nodes = names_of(entry.pre_optimization_graph.node)
        for variant, definition in reversed(list(zip(variants, definitions, strict=True))):
            if names_of(definition.node_def) <= nodes:
                return variant, None
    return variants[0], None


def _names(function: Function) -> list[str]:
    """A function's own name and those of its forms that give what a tape needs besides."""
    # private: functions to be run under a tape
    made = [getattr(function.keep, name, {}) for name in ("_first_order_tape_functions", "_higher_order_tape_functions")]
    forward = [getattr(form, "_forward", None) for forms in made for form in forms.values()]
    return [function.name, *(form.name.decode() for form in forward if form is not None)]
