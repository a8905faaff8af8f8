"""
Ops that are still in a graph when Grappler is done with it, although one of its optimisers could have taken them out.

Only what is certain is listed: each rule below holds for every value that the graph may be given. What each optimiser takes out
is in tensorflow/core/grappler/optimizers: debug_stripper.cc, dependency_optimizer.cc, loop_optimizer.cc, constant_folding.cc,
arithmetic_optimizer.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from pytest_tfperf.compiler.compilable_parts import Function
from pytest_tfperf.compiler.grappler_ablation import rewriter_config, running
from pytest_tfperf.compiler.instances import counts
from pytest_tfperf.compiler.source_lines import lines_in
from pytest_tfperf.op_types import BRANCHES, is_op
from pytest_tfperf.recording import GraphOp

DEBUG_OPS = frozenset({"Assert", "CheckNumerics", "Print", "PrintV2"})
LARGEST_CONSTANT = 100 * 1024
"""Bytes of a result that are folded whatever the size of the inputs (kMaxConstantSize in constant_folding.cc)."""
_NOT_FOLDED = ("Quantize", "FakeQuant", "Dequantize", "Sparse", "Placeholder", "_Fused")
_NO_OPTIMIZER = ""

Found = tuple[str, str]
"""What is superfluous about an op, and the option of the optimiser that takes it out; "" if there is none."""


def surviving(graphs: Iterable[tuple[Function, Any]]) -> tuple[GraphOp, ...]:
    """What should have been taken out of functions, each with the GraphDef that Grappler left of it."""
    config = rewriter_config()
    return tuple(op for function, graph in graphs for op in _survivors(function, graph, config))


def _survivors(function: Function, graph: Any, config: Any) -> Iterator[GraphOp]:
    view, line_of, constant = (
        View.of(graph),
        lines_in(getattr(function.keep, "graph", None)),
        computed_from_constants(graph),
    )
    for node in graph.node:
        found = next(filter(None, (rule(node, view) for rule in _RULES)), None)
        if found is None and node.name in constant:
            found = "is computed from constants alone", "constant_folding"
        if found is not None:
            yield GraphOp(
                name=node.name, op_type=node.op, line=line_of(node), why=_why(*found, config)
            )


def _why(what: str, option: str, config: Any) -> str:
    if option == _NO_OPTIMIZER:
        return f"{what}; no optimiser takes it out: do so in the code"
    if option in running(config):
        return f"{what}; {option} runs, and left it: take it out of the code"
    off, value = (
        ("disable_meta_optimizer", False) if config.disable_meta_optimizer else (option, True)
    )
    state = f"Grappler is off by {off}" if off != option else f"{option} is off"
    return f"{what}; {state}: tf.config.optimizer.set_experimental_options({{'{off}': {value}}})"


@dataclass(frozen=True)
class View:
    """A GraphDef whose nodes are found by name; `fetched` are the names of those that give results, `anchors` order others."""

    nodes: Mapping[str, Any]
    fetched: frozenset[str]
    anchors: frozenset[str]

    @classmethod
    def of(cls, graph: Any) -> View:
        """Of a GraphDef."""
        results = {
            ref.partition(":")[0]
            for node in graph.node
            if node.op == "_Retval"
            for ref in node.input
        }
        ordering = {ref[1:] for node in graph.node for ref in node.input if ref.startswith("^")}
        return cls(
            nodes={node.name: node for node in graph.node},
            fetched=frozenset(results),
            anchors=frozenset(ordering),
        )

    def sources(self, node: Any) -> list[Any]:
        """The nodes whose results a node takes."""
        return [
            self.nodes.get(ref.partition(":")[0]) for ref in node.input if not ref.startswith("^")
        ]

    def source(self, node: Any, index: int = 0) -> Any:
        """The node whose result is a node's input, None where there is none."""
        return next(iter(self.sources(node)[index:]), None)

    def is_free(self, node: Any) -> bool:
        """Whether a node neither waits for others, nor others for it."""
        return node.name not in self.anchors and not any(ref.startswith("^") for ref in node.input)


def _debug(node: Any, _view: View) -> Found | None:
    return ("helps debugging alone", "debug_stripper") if node.op in DEBUG_OPS else None


def _identity(node: Any, view: View) -> Found | None:
    """An Identity of an Identity on the same device; one that orders others, or gives a result, may be there for that."""
    source = view.source(node)
    chained = (
        node.op == "Identity"
        and counts(node)
        and source is not None
        and source.op == "Identity"
        and source.device == node.device
    )
    if chained and all(
        view.is_free(one) and one.name not in view.fetched for one in (node, source)
    ):
        return f"is an identity of the identity {source.name}", "dependency_optimization"
    return None


def _dead_branch(node: Any, view: View) -> Found | None:
    """A branch that is always or never taken."""
    if node.op == "Switch":
        chosen = view.source(node, 1)
    elif node.op in BRANCHES:
        chosen = view.source(node)
    else:
        return None
    if chosen is None or chosen.op != "Const":
        return None
    return f"chooses a branch by a constant, {_value(chosen).item()}", "loop_optimization"


def _transposes(node: Any, view: View) -> Found | None:
    """A Transpose that takes another one back."""
    inner = view.source(node)
    if node.op != "Transpose" or inner is None or inner.op != "Transpose":
        return None
    orders = [view.source(one, 1) for one in (inner, node)]
    if any(order is None or order.op != "Const" for order in orders) or not (
        view.is_free(node) and view.is_free(inner)
    ):
        return None
    first, second = map(_value, orders)
    if [first[axis] for axis in second] == list(range(len(first))):
        return f"takes the transpose {inner.name} back", "arithmetic_optimization"
    return None


def _casts(node: Any, view: View) -> Found | None:
    """A Cast to the type that there is, or back from a wider one."""
    if node.op != "Cast" or not view.is_free(node):
        return None
    given, wanted, inner = node.attr["SrcT"].type, node.attr["DstT"].type, view.source(node)
    if given == wanted:
        return "casts to the type that its input has", "arithmetic_optimization"
    if (
        inner is not None
        and inner.op == "Cast"
        and inner.attr["SrcT"].type == wanted
        and _holds(given, wanted)
    ):
        return f"takes the cast {inner.name} back, which lost nothing", _NO_OPTIMIZER
    return None


_RULES: tuple[Callable[[Any, View], Found | None], ...] = (
    _debug,
    _identity,
    _dead_branch,
    _transposes,
    _casts,
)


def _holds(wider: int, narrower: int) -> bool:
    """Whether a type holds all values of another, both of real numbers or both of whole ones."""
    import numpy as np
    import tensorflow as tf

    one, other = tf.as_dtype(wider), tf.as_dtype(narrower)
    alike = (one.is_floating and other.is_floating) or (one.is_integer and other.is_integer)
    return alike and bool(np.can_cast(other.as_numpy_dtype, one.as_numpy_dtype, "safe"))


def _value(constant: Any) -> Any:
    import tensorflow as tf

    return tf.make_ndarray(constant.attr["value"].tensor)


def computed_from_constants(graph: Any) -> frozenset[str]:
    """Names of the ops of a GraphDef that compute small results from constants alone, directly or not."""
    view = View.of(graph)
    unknown = {
        node.name: {source.name for source in view.sources(node) if source is not None}
        for node in graph.node
        if _is_foldable(node)
    }
    uses: dict[str, list[str]] = {}
    for name, sources in unknown.items():
        for source in sources:
            uses.setdefault(source, []).append(name)
    known, waiting = [], [node.name for node in graph.node if node.op == "Const"]
    while waiting:
        name = waiting.pop()
        for user in uses.get(name, ()):
            unknown[user].discard(name)
            if not unknown[user]:
                known.append(user)
                waiting.append(user)
    return _small([view.nodes[name] for name in known], view) if known else frozenset()


def _is_foldable(node: Any) -> bool:
    """Whether constant folding takes an op whose inputs are constants: it always gives the same, and stands for nothing else."""
    from tensorflow.python.framework import op_def_registry

    if (
        not is_op(node.op)
        or node.op.startswith(_NOT_FOLDED)
        or node.op in ("Const", "Identity", "IdentityN")
    ):
        return False
    definition = op_def_registry.get(node.op)
    return definition is not None and not definition.is_stateful and bool(definition.output_arg)


def _small(nodes: Iterable[Any], view: View) -> frozenset[str]:
    """Those of them whose results TensorFlow knows to be small."""
    import tensorflow as tf

    part = tf.compat.v1.GraphDef()
    part.node.extend(
        {one.name: one for node in nodes for one in (node, *view.sources(node))}.values()
    )
    for node in part.node:
        del node.input[
            next((i for i, ref in enumerate(node.input) if ref.startswith("^")), len(node.input)) :
        ]
        node.device = ""
        node.attr.pop("_class", None)  # says with what it is placed
    with tf.Graph().as_default() as graph:
        try:
            tf.graph_util.import_graph_def(part, name="")
        except (ValueError, tf.errors.OpError):  # an op that only the runtime may make
            return frozenset()
    return frozenset(
        node.name
        for node in nodes
        if _bytes(graph.get_operation_by_name(node.name)) <= LARGEST_CONSTANT
    )


def _bytes(op: Any) -> float:
    """Of all results of an op; infinite if they are not known, or are no numbers."""
    results = [(result.shape.num_elements(), result.dtype) for result in op.outputs]
    if any(
        n is None
        or not (dtype.is_floating or dtype.is_integer or dtype.is_bool or dtype.is_complex)
        for n, dtype in results
    ):
        return inf
    return float(sum(n * dtype.size for n, dtype in results))
