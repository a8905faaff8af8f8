"""The definitions of functions in TensorFlow's runtime, and what they call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pytest_tfperf.graphs import reached

_GROWS = {
    "TensorListSetItem": "resize_if_index_out_of_bounds",
    "TensorArrayV3": "dynamic_size",
    "TensorListResize": "",
}


def definition_of(name: str) -> Any:
    """The FunctionDef of a function that the runtime knows."""
    from tensorflow.python.eager import context

    return context.context().get_function_def(name)


def called_by(node: Any) -> list[str]:
    """The functions that a NodeDef names in its attributes."""
    values = node.attr.values()
    return [
        func.name
        for value in values
        for func in ([value.func] if value.HasField("func") else value.list.func)
    ]


def must_compile(node: Any) -> bool:
    """Whether the user asked XLA to compile (jit_compile=True) what a NodeDef calls, or a FunctionDef."""
    return "_XlaMustCompile" in node.attr and bool(node.attr["_XlaMustCompile"].b)


def reached_from(names: Iterable[str]) -> list[Any]:
    """The definitions of these functions and of all that they call, directly or not, each once."""
    definitions: dict[str, Any] = {}

    def callees(name: str) -> list[str]:
        definitions[name] = definition_of(name)
        return [called for node in definitions[name].node_def for called in called_by(node)]

    return [definitions[name] for name in reached(names, callees)]


def grows_array(definition: Any) -> bool:
    """Whether a function itself writes to a TensorArray that may grow."""
    return any(
        node.attr[_GROWS[node.op]].b or node.op == "TensorListResize"
        for node in definition.node_def
        if node.op in _GROWS
    )


def graph_of(definition: Any, shapes: Sequence[Any]) -> Any:
    """A function as a graph, with all shapes that follow from those of its arguments; None is one that is not known."""
    from tensorflow.python.framework import function_def_to_graph

    return function_def_to_graph.function_def_to_graph(
        without_traced_shapes(definition), input_shapes=shapes
    )


def without_traced_shapes(definition: Any) -> Any:
    """A copy whose arguments do not insist on the shapes that they were traced with."""
    copy = type(definition)()
    copy.CopyFrom(definition)
    for arg in copy.arg_attr.values():
        arg.attr.pop("_output_shapes", None)
    return copy
