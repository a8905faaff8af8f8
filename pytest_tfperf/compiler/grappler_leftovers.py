"""
Grappler leftovers: superfluous ops that are still in a graph after Grappler.

Each rule below holds for every value that the graph may receive. The passes that remove such ops
are in tensorflow/core/grappler/optimizers: debug_stripper.cc, dependency_optimizer.cc,
loop_optimizer.cc, constant_folding.cc, arithmetic_optimizer.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from pytest_tfperf.compiler.functions import Function
from pytest_tfperf.compiler.grappler_ablation import rewriter_config, running
from pytest_tfperf.compiler.runtime_graphs import counts
from pytest_tfperf.compiler.source_lines import lines_in
from pytest_tfperf.op_types import BRANCHES, is_op
from pytest_tfperf.recorded_graphs import GraphOp

DEBUG_OPS = frozenset({"Assert", "CheckNumerics", "Print", "PrintV2"})
LARGEST_CONSTANT = 100 * 1024
"""
Largest result, in bytes, that is folded whatever the size of its inputs.

Source: kMaxConstantSize in constant_folding.cc.
"""
_NOT_FOLDED = ("Quantize", "FakeQuant", "Dequantize", "Sparse", "Placeholder", "_Fused")
_NO_PASS = ""

Leftover = tuple[str, str]
"""Why an op is superfluous, and the option of the Grappler pass that removes it ("": none)."""


def leftovers(graphs: Iterable[tuple[Function, Any]]) -> tuple[GraphOp, ...]:
    """Return the superfluous ops of functions, each with its GraphDef after Grappler."""
    config = rewriter_config()
    return tuple(op for function, graph in graphs for op in _leftovers(function, graph, config))


def _leftovers(function: Function, graph: Any, config: Any) -> Iterator[GraphOp]:
    view = View.of(graph)
    line_of = lines_in(getattr(function.keep, "graph", None))
    constant = computed_from_constants(graph)
    for node in graph.node:
        leftover = next(filter(None, (rule(node, view) for rule in _RULES)), None)
        if leftover is None and node.name in constant:
            leftover = "is computed from constants alone", "constant_folding"
        if leftover is not None:
            why = _why(*leftover, config)
            yield GraphOp(name=node.name, op_type=node.op, line=line_of(node), why=why)


def _why(reason: str, option: str, config: Any) -> str:
    if option == _NO_PASS:
        return f"{reason}; no Grappler pass removes it: do so in the code"
    if option in running(config):
        return f"{reason}; {option} runs, and left it: remove it from the code"
    if config.disable_meta_optimizer:
        option, value, state = (
            "disable_meta_optimizer",
            False,
            "Grappler is off by disable_meta_optimizer",
        )
    else:
        value, state = True, f"{option} is off"
    call = f"tf.config.optimizer.set_experimental_options({{'{option}': {value}}})"
    return f"{reason}; {state}: {call}"


@dataclass(frozen=True)
class View:
    """Index of a GraphDef by node names."""

    nodes: Mapping[str, Any]
    """Each node by its name."""
    fetched: frozenset[str]
    """Names of the nodes that give results."""
    anchors: frozenset[str]
    """Names of the nodes that others wait for by a control edge."""

    @classmethod
    def of(cls, graph: Any) -> View:
        """Index a GraphDef."""
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
        """Return the nodes whose results a node takes."""
        return [
            self.nodes.get(ref.partition(":")[0]) for ref in node.input if not ref.startswith("^")
        ]

    def source(self, node: Any, index: int = 0) -> Any:
        """Return the node of an input, None if there is none."""
        return next(iter(self.sources(node)[index:]), None)

    def is_free(self, node: Any) -> bool:
        """Return whether no control edge leads to or from a node."""
        return node.name not in self.anchors and not any(ref.startswith("^") for ref in node.input)


def _debug(node: Any, _view: View) -> Leftover | None:
    return ("only helps debugging", "debug_stripper") if node.op in DEBUG_OPS else None


def _identity(node: Any, view: View) -> Leftover | None:
    """
    Find an Identity of an Identity on the same device.

    One that has control edges, or gives a result, may exist for that purpose.
    """
    source = view.source(node)
    chained = (
        node.op == "Identity"
        and counts(node)
        and source is not None
        and source.op == "Identity"
        and source.device == node.device
    )
    if chained and all(
        view.is_free(identity) and identity.name not in view.fetched for identity in (node, source)
    ):
        return f"is an identity of the identity {source.name}", "dependency_optimization"
    return None


def _dead_branch(node: Any, view: View) -> Leftover | None:
    """Find a branch that is always or never taken."""
    if node.op == "Switch":
        chosen = view.source(node, 1)
    elif node.op in BRANCHES:
        chosen = view.source(node)
    else:
        return None
    if chosen is None or chosen.op != "Const":
        return None
    return f"chooses a branch by a constant, {_value(chosen).item()}", "loop_optimization"


def _transposes(node: Any, view: View) -> Leftover | None:
    """Find a Transpose that reverses another one."""
    inner = view.source(node)
    if node.op != "Transpose" or inner is None or inner.op != "Transpose":
        return None
    orders = [view.source(transpose, 1) for transpose in (inner, node)]
    if any(order is None or order.op != "Const" for order in orders) or not (
        view.is_free(node) and view.is_free(inner)
    ):
        return None
    first, second = map(_value, orders)
    if [first[axis] for axis in second] == list(range(len(first))):
        return f"reverses the transpose {inner.name}", "arithmetic_optimization"
    return None


def _casts(node: Any, view: View) -> Leftover | None:
    """Find a Cast to the type of its input, or back from a wider type."""
    if node.op != "Cast" or not view.is_free(node):
        return None
    source, target, inner = node.attr["SrcT"].type, node.attr["DstT"].type, view.source(node)
    if source == target:
        return "casts to the type that its input has", "arithmetic_optimization"
    if (
        inner is not None
        and inner.op == "Cast"
        and inner.attr["SrcT"].type == target
        and _holds(source, target)
    ):
        return f"reverses the cast {inner.name}, which lost nothing", _NO_PASS
    return None


_RULES: tuple[Callable[[Any, View], Leftover | None], ...] = (
    _debug,
    _identity,
    _dead_branch,
    _transposes,
    _casts,
)


def _holds(wider: int, narrower: int) -> bool:
    """Return whether a type holds all values of another, both floating or both integer."""
    import numpy as np
    import tensorflow as tf

    wide, narrow = tf.as_dtype(wider), tf.as_dtype(narrower)
    alike = (wide.is_floating and narrow.is_floating) or (wide.is_integer and narrow.is_integer)
    return alike and bool(np.can_cast(narrow.as_numpy_dtype, wide.as_numpy_dtype, "safe"))


def _value(constant: Any) -> Any:
    import tensorflow as tf

    return tf.make_ndarray(constant.attr["value"].tensor)


def computed_from_constants(graph: Any) -> frozenset[str]:
    """Return the names of the ops that compute small results from constants alone."""
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
    """Return whether constant folding may remove an op: it has no state and no side effect."""
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
    """Return the names of the nodes whose results TensorFlow infers to be small."""
    import tensorflow as tf

    part = tf.compat.v1.GraphDef()
    needed = [part_node for node in nodes for part_node in (node, *view.sources(node))]
    part.node.extend({part_node.name: part_node for part_node in needed}.values())
    for node in part.node:
        data = [ref for ref in node.input if not ref.startswith("^")]
        del node.input[:]
        node.input.extend(data)
        node.device = ""
        node.attr.pop("_class", None)  # names the nodes that it is placed with
    with tf.Graph().as_default() as graph:
        try:
            tf.graph_util.import_graph_def(part, name="")
        except (ValueError, tf.errors.OpError):  # an op that only the runtime may create
            return frozenset()
    return frozenset(
        node.name
        for node in nodes
        if _bytes(graph.get_operation_by_name(node.name)) <= LARGEST_CONSTANT
    )


def _bytes(op: Any) -> float:
    """Return the size of all results of an op; infinite if unknown, or not numeric."""
    results = [(result.shape.num_elements(), result.dtype) for result in op.outputs]
    if any(
        n is None
        or not (dtype.is_floating or dtype.is_integer or dtype.is_bool or dtype.is_complex)
        for n, dtype in results
    ):
        return inf
    return float(sum(n * dtype.size for n, dtype in results))
