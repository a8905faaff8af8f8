"""The functions that a step calls as one graph of ops, from the graphs that Python traced; nothing is run or instantiated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from pytest_tfperf.compiler.compilable_parts import has_kernel
from pytest_tfperf.compiler.functions import definition_of
from pytest_tfperf.compiler.probe import Probe
from pytest_tfperf.compiler.source_lines import user_line
from pytest_tfperf.graphs import reached
from pytest_tfperf.op_types import BRANCHES, FUNCTION_CALLS, LOOPS, computes
from pytest_tfperf.recording import Edge, Ints, Op, OpGraph, Tensor

MAX_OPS, UNASKED_OPS = 20_000, 10_000
"""Ops of a step whose graph is made, with functions once for each call, where a limit asks for it and else: 0.1 ms each in Keras models."""
_NO_FUNCTION = "the step calls no tf.function, so it has no graph"
_LARGE = "the step's functions hold more than {:,} ops, with what they call once for each call{}"
_ASK = "; a limit on op_guide_findings (max_op_guide_findings=) asks for it"
_DEEPEST = 50  # calls within calls; TensorFlow runs no function that calls itself without end
_MOST_ELEMENTS = 512
_WHOLE = frozenset({"int32", "int64"})
_READ_ATTRS = ("data_format", "equation")


class _TooLarge(Exception):
    """A step with more ops than are looked at."""


def op_graph(probe: Probe, asked: bool = True) -> OpGraph | str:
    """
    The ops of the functions that Python called in the probe's step, each function once, or why they are not known.

    Where nobody `asked`, a large step is not looked at.
    """
    if probe.why is not None or probe.calls.why is not None:
        return str(probe.why or probe.calls.why)
    graphs = {
        function.name: getattr(function.keep, "graph", None)
        for function in probe.calls.functions.values()
    }
    if not graphs:
        return _NO_FUNCTION
    if None in graphs.values():
        return "the graphs of the step's functions are not kept by this version of TensorFlow"
    try:
        return graph_of(graphs.values(), MAX_OPS if asked else UNASKED_OPS)
    except _TooLarge:
        return _LARGE.format(MAX_OPS, "") if asked else _LARGE.format(UNASKED_OPS, _ASK)
    except Exception as error:  # whatever TensorFlow says must not end the user's test
        return f"the step's graphs could not be read: {type(error).__name__}: {error}"


def graph_of(graphs: Iterable[Any], max_ops: int = MAX_OPS) -> OpGraph:
    """The ops of FuncGraphs, with what they call in place of the calls, as far as their results and effects need them."""
    flat = _Flat(max_ops)
    results = [
        edge
        for graph in graphs
        for edge in flat.add(graph, (), "", False, _DEEPEST)
        if edge is not None
    ]
    return _needed(flat, results)


@dataclass(slots=True)
class _Flat:
    """Ops so far; `bodies` holds what the loops and branches among them need from within, `effects` those that run for what they do."""

    max_ops: int
    ops: list[Op] = field(default_factory=list)
    bodies: dict[int, list[int]] = field(default_factory=dict)
    effects: list[int] = field(default_factory=list)

    def add(
        self, graph: Any, args: Sequence[Edge | None], scope: str, in_loop: bool, depth: int
    ) -> list[Edge | None]:
        """The edges of a FuncGraph's results, after its ops were added; `args` are those of its arguments, None where none is known."""
        given = {
            _key(tensor): edge
            for tensor, edge in zip(graph.inputs, args, strict=False)
            if edge is not None
        }
        edges: dict[tuple[str, int], Edge | None] = dict(given)
        ops = graph.get_operations()
        if len(self.ops) + len(ops) - len(given) > self.max_ops:
            raise _TooLarge
        for op in ops:
            if (op.name, 0) in given:
                continue
            inputs = tuple(edges.get(_key(tensor)) for tensor in op.inputs)
            inner = _called(graph, op) if depth else {}
            if op.type in FUNCTION_CALLS and inner:
                found = self.add(
                    next(iter(inner.values())), inputs, f"{scope}{op.name}/", in_loop, depth - 1
                )
                edges |= {(op.name, index): edge for index, edge in enumerate(found)}
                continue
            place = self._append(op, inputs, scope, in_loop)
            edges |= {(op.name, index): (place, index) for index in range(len(op.outputs))}
            for name, body in inner.items():
                args_of = _args_of(op, name, body, inputs)
                results = self.add(
                    body,
                    args_of,
                    f"{scope}{op.name}/",
                    in_loop or _is_inner_loop(op, body),
                    depth - 1,
                )
                self.bodies.setdefault(place, []).extend(
                    edge[0] for edge in results if edge is not None
                )
        return [edges.get(_key(tensor)) for tensor in graph.outputs]

    def _append(self, op: Any, inputs: tuple[Edge | None, ...], scope: str, in_loop: bool) -> int:
        self.ops.append(_op(op, inputs, scope, in_loop))
        if op.op_def.is_stateful:
            self.effects.append(len(self.ops) - 1)
        return len(self.ops) - 1


def _args_of(op: Any, name: str, body: Any, inputs: Sequence[Edge | None]) -> list[Edge | None]:
    """What the body of a loop, or a branch, is given; None for what a loop may give anew in each turn."""
    if op.type in LOOPS:
        return [
            edge if name == "body" and _same(*ends) else None
            for edge, *ends in zip(inputs, body.inputs, body.outputs, strict=False)
        ]
    return list(inputs[1:]) if op.type in BRANCHES else [None] * len(body.inputs)


def _is_inner_loop(op: Any, body: Any) -> bool:
    """Whether an op is a loop in a step; where each turn fetches from an iterator the turns are steps."""
    return op.type in LOOPS and not _fetches(body, _DEEPEST)


def _fetches(graph: Any, depth: int) -> bool:
    """Whether a graph, or what it calls, takes elements from an iterator."""
    return any(
        op.type.startswith("IteratorGetNext")
        or (depth and any(_fetches(inner, depth - 1) for inner in _called(graph, op).values()))
        for op in graph.get_operations()
    )


def _op(op: Any, inputs: tuple[Edge | None, ...], scope: str, in_loop: bool) -> Op:
    node = op.node_def
    attrs = {name: node.attr[name].s.decode() for name in _READ_ATTRS if name in node.attr}
    return Op(
        name=f"{scope}{op.name}",
        op_type=op.type,
        inputs=inputs,
        outputs=tuple(
            Tensor(shape=_dims(tensor), dtype=tensor.dtype.base_dtype.name) for tensor in op.outputs
        ),
        value=_value(op),
        attrs=attrs,
        line=user_line(op) if _may_be_listed(op.type) else None,
        in_loop=in_loop,
        compiles=_compiles(op),
    )


def _may_be_listed(op_type: str) -> bool:
    """Whether somebody may ask for an op's line, which takes longer to find than all else of it."""
    return computes(op_type) and op_type != "Placeholder"


def _dims(tensor: Any) -> tuple[int | None, ...] | None:
    return None if tensor.shape.rank is None else tuple(tensor.shape.as_list())


def _key(tensor: Any) -> tuple[str, int]:
    return tensor.op.name, tensor.value_index


def _value(op: Any) -> Ints | None:
    """The result of an op, where it is a small constant of whole numbers."""
    import tensorflow as tf

    if (
        len(op.outputs) != 1
        or op.outputs[0].dtype.name not in _WHOLE
        or (op.outputs[0].shape.num_elements() or 0) > _MOST_ELEMENTS
    ):
        return None
    if op.type not in (
        "Const",
        "Pack",
        "ConcatV2",
        "Range",
        "Fill",
        "Shape",
        "Cast",
        "StridedSlice",
        "Squeeze",
        "Size",
        "Rank",
    ):
        return None
    value = tf.get_static_value(op.outputs[0])
    return None if value is None or value.size > _MOST_ELEMENTS else _tuples(value.tolist())


def _tuples(value: Any) -> Ints:
    return tuple(map(_tuples, value)) if isinstance(value, list) else int(value)


def _called(graph: Any, op: Any) -> dict[str, Any]:
    """The graphs that an op runs, by the attribute that names them; none of tf.data's."""
    if "Dataset" in op.type or not any(
        value.HasField("func") or value.list.func for value in op.node_def.attr.values()
    ):
        return {}
    found = {}
    for key, value in op.node_def.attr.items():
        for position, func in enumerate(
            [value.func] if value.HasField("func") else value.list.func
        ):
            inner = _graph_named(graph, func.name)
            if inner is not None:
                found[key if value.HasField("func") else f"{key}{position}"] = inner
    return found


def _graph_named(graph: Any, name: str) -> Any:
    """The FuncGraph of a function that a graph knows; made anew, without lines, where Python did not keep it."""
    # private: the functions that a graph, or one around it, knows
    while graph is not None:
        function = getattr(graph, "_functions", {}).get(name)
        if function is not None and getattr(function, "graph", None) is not None:
            return function.graph
        graph = getattr(graph, "outer_graph", None)
    return _rebuilt(name)


def _rebuilt(name: str) -> Any:
    from tensorflow.python.framework import function_def_to_graph

    return function_def_to_graph.function_def_to_graph(definition_of(name))


def _same(arg: Any, result: Any) -> bool:
    """Whether a loop's body gives an argument on as it is."""
    while result.op.type == "Identity":
        result = result.op.inputs[0]
    return _key(arg) == _key(result)


def _compiles(op: Any) -> bool:
    """Whether XLA has a kernel for an op and its types."""
    if not has_kernel(op.type):
        return False
    types = {name: value.type for name, value in op.node_def.attr.items() if value.type}
    return any(
        all(types.get(name, 0) in allowed for name, allowed in kernel if name in types)
        for kernel in _kernels(op.type)
    )


@cache
def _kernels(op_type: str) -> list[list[tuple[str, frozenset[int]]]]:
    """Of each kernel that XLA has for ops of a type the types that it takes, by attribute."""
    from tensorflow.python.framework import kernels

    found = kernels.get_registered_kernels_for_op(op_type).kernel
    compiled = [kernel for kernel in found if kernel.device_type == "XLA_CPU_JIT"]
    return [
        [(limit.name, frozenset(limit.allowed_values.list.type)) for limit in kernel.constraint]
        for kernel in compiled
    ]


def _needed(flat: _Flat, results: Sequence[Edge]) -> OpGraph:
    """The graph without what neither results nor effects need."""
    live = reached(
        [edge[0] for edge in results] + flat.effects,
        lambda index: (
            [edge[0] for edge in flat.ops[index].inputs if edge is not None]
            + flat.bodies.get(index, [])
        ),
    )
    places = {old: new for new, old in enumerate(sorted(live))}

    def moved(edge: Edge | None) -> Edge | None:
        return None if edge is None else (places[edge[0]], edge[1])

    ops = tuple(
        replace(flat.ops[old], inputs=tuple(map(moved, flat.ops[old].inputs))) for old in places
    )
    return OpGraph(ops=ops, results=tuple((places[index], output) for index, output in results))
