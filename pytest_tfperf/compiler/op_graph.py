"""
The functions that a step calls as one graph of ops.

It comes from the graphs that Python traced; nothing is run or instantiated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from pytest_tfperf.compiler.functions import definition_of
from pytest_tfperf.compiler.source_lines import user_line
from pytest_tfperf.compiler.step_calls import Probe
from pytest_tfperf.graphs import Edge, OpGraph, OpNode, Tensor, reached
from pytest_tfperf.op_types import BRANCHES, FUNCTION_CALLS, LOOPS, computes, is_pipeline
from pytest_tfperf.values import Unknown

_NO_FUNCTION = "the step calls no tf.function, so it has no graph"
_SLOW = (
    "reading the ops of its functions, each callee once for each call, takes longer than {:g} s "
    "(tfperf_max_seconds)"
)
_DEEPEST = 50  # nested calls; TensorFlow runs no endless recursion


class _TooSlow(Exception):
    """The time limit has passed."""


def op_graph(probe: Probe, max_seconds: float = math.inf) -> OpGraph | Unknown:
    """
    Return the ops of the functions called in the probe's step, or a reason why they are unknown.

    Each function counts once. An op takes 0.1 to 0.2 ms.

    Args:
        probe: Record of the step.
        max_seconds: Time limit.
    """
    if probe.why is not None or probe.calls.why is not None:
        return Unknown(str(probe.why or probe.calls.why))
    graphs = {
        function.name: getattr(function.keep, "graph", None)
        for function in probe.calls.functions.values()
    }
    if not graphs:
        return Unknown(_NO_FUNCTION)
    if None in graphs.values():
        return Unknown(
            "the graphs of the step's functions are not kept by this version of TensorFlow"
        )
    try:
        return graph_of(graphs.values(), max_seconds)
    except _TooSlow:
        return Unknown(_SLOW.format(max_seconds))
    except Exception as error:  # an error of TensorFlow's must not end the user's test
        return Unknown(f"the step's graphs could not be read: {type(error).__name__}: {error}")


def graph_of(graphs: Iterable[Any], max_seconds: float = math.inf) -> OpGraph:
    """Return the ops of FuncGraphs that results and effects need, with callees inlined."""
    flat = _Flat(perf_counter() + max_seconds)
    results = [
        edge
        for graph in graphs
        for edge in flat.add(graph, (), "", False, _DEEPEST)
        if edge is not None
    ]
    return _needed(flat, results)


@dataclass(slots=True)
class _Flat:
    """Flat list of ops, with callees inlined."""

    deadline: float
    """When to end, by `perf_counter`."""
    ops: list[OpNode] = field(default_factory=list)
    """Ops so far."""
    bodies: dict[int, list[int]] = field(default_factory=dict)
    """For each loop or branch, by index, the ops in it that its results need."""
    effects: list[int] = field(default_factory=list)
    """Indices of the ops that run for their side effects."""

    def add(
        self, graph: Any, args: Sequence[Edge | None], scope: str, in_loop: bool, depth: int
    ) -> list[Edge | None]:
        """
        Add the ops of a FuncGraph.

        Args:
            graph: The FuncGraph.
            args: Edge of each of its arguments, None where unknown.
            scope: Prefix of its op names.
            in_loop: Whether it runs in a loop within the step.
            depth: Largest number of nested calls left.

        Returns:
            The edges of its results.

        Raises:
            _TooSlow: If the deadline has passed.
        """
        known = {
            _key(tensor): edge
            for tensor, edge in zip(graph.inputs, args, strict=False)
            if edge is not None
        }
        edges: dict[tuple[str, int], Edge | None] = dict(known)
        for op in graph.get_operations():
            if (op.name, 0) in known:
                continue
            if perf_counter() > self.deadline:
                raise _TooSlow
            inputs = tuple(edges.get(_key(tensor)) for tensor in op.inputs)
            inner = _called(graph, op) if depth else {}
            if op.type in FUNCTION_CALLS and inner:
                callee = next(iter(inner.values()))
                results = self.add(callee, inputs, f"{scope}{op.name}/", in_loop, depth - 1)
                edges |= {(op.name, index): edge for index, edge in enumerate(results)}
                continue
            place = self._append(op, inputs, scope, in_loop)
            edges |= {(op.name, index): (place, index) for index in range(len(op.outputs))}
            for name, body in inner.items():
                results = self.add(
                    body,
                    _args_of(op, name, body, inputs),
                    f"{scope}{op.name}/",
                    in_loop or _is_inner_loop(op, body),
                    depth - 1,
                )
                needed = [edge[0] for edge in results if edge is not None]
                self.bodies.setdefault(place, []).extend(needed)
        return [edges.get(_key(tensor)) for tensor in graph.outputs]

    def _append(self, op: Any, inputs: tuple[Edge | None, ...], scope: str, in_loop: bool) -> int:
        self.ops.append(_op(op, inputs, scope, in_loop))
        if op.op_def.is_stateful:
            self.effects.append(len(self.ops) - 1)
        return len(self.ops) - 1


def _args_of(op: Any, name: str, body: Any, inputs: Sequence[Edge | None]) -> list[Edge | None]:
    """Return the arguments of a loop's body, or of a branch; None for those that a loop changes."""
    if op.type in LOOPS:
        return [
            edge if name == "body" and _same(*ends) else None
            for edge, *ends in zip(inputs, body.inputs, body.outputs, strict=False)
        ]
    return list(inputs[1:]) if op.type in BRANCHES else [None] * len(body.inputs)


def _is_inner_loop(op: Any, body: Any) -> bool:
    """Return whether an op is a loop within a step, not a loop over steps that fetch elements."""
    return op.type in LOOPS and not _fetches(body, _DEEPEST)


def _fetches(graph: Any, depth: int) -> bool:
    """Return whether a graph, or a callee, takes elements from an iterator."""
    return any(
        op.type.startswith("IteratorGetNext")
        or (depth and any(_fetches(inner, depth - 1) for inner in _called(graph, op).values()))
        for op in graph.get_operations()
    )


def _op(op: Any, inputs: tuple[Edge | None, ...], scope: str, in_loop: bool) -> OpNode:
    return OpNode(
        name=f"{scope}{op.name}",
        op_type=op.type,
        inputs=inputs,
        outputs=tuple(
            Tensor(shape=_dims(tensor), dtype=tensor.dtype.base_dtype.name) for tensor in op.outputs
        ),
        line=user_line(op) if _may_be_listed(op.type) else None,
        in_loop=in_loop,
    )


def _may_be_listed(op_type: str) -> bool:
    """Return whether an op's source line may be needed; it is the slowest to find."""
    return computes(op_type) and op_type != "Placeholder"


def _dims(tensor: Any) -> tuple[int | None, ...] | None:
    return None if tensor.shape.rank is None else tuple(tensor.shape.as_list())


def _key(tensor: Any) -> tuple[str, int]:
    return tensor.op.name, tensor.value_index


def _called(graph: Any, op: Any) -> dict[str, Any]:
    """Return the graphs that an op runs, by the attribute that names them; none for tf.data."""
    if is_pipeline(op.type) or not any(
        value.HasField("func") or value.list.func for value in op.node_def.attr.values()
    ):
        return {}
    called = {}
    for key, value in op.node_def.attr.items():
        single = value.HasField("func")
        for position, func in enumerate([value.func] if single else value.list.func):
            inner = _graph_named(graph, func.name)
            if inner is not None:
                called[key if single else f"{key}{position}"] = inner
    return called


def _graph_named(graph: Any, name: str) -> Any:
    """Return a callee's FuncGraph, rebuilt without source lines if Python did not keep it."""
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
    """Return whether a loop's body returns an argument unchanged."""
    while result.op.type == "Identity":
        result = result.op.inputs[0]
    return _key(arg) == _key(result)


def _needed(flat: _Flat, results: Sequence[Edge]) -> OpGraph:
    """Return the graph without ops that neither results nor effects need."""
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

    return OpGraph(
        ops=tuple(
            replace(flat.ops[old], inputs=tuple(map(moved, flat.ops[old].inputs))) for old in places
        )
    )
