"""Functions in TensorFlow's runtime: their definitions, arguments, callees and graphs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tfperf.graphs import reached

_GROWS = {
    "TensorListSetItem": "resize_if_index_out_of_bounds",
    "TensorArrayV3": "dynamic_size",
    "TensorListResize": "",
}


Segments = tuple[tuple[str, int, int], ...]
"""Name of each op behind those of the calls around it, its number of ids and of segments."""


class Unsupported(Exception):
    """The reason why the modules or graphs of a function are not available."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function in TensorFlow's runtime and the arguments of one call."""

    name: str
    """Name in the runtime."""
    args: tuple[Any, ...]
    """A TensorSpec for each tensor, and resources themselves (None: unknown)."""
    definition: Any = None
    """FunctionDef of a function that the runtime does not know yet."""
    keep: Any = None
    """Concrete function to hold a reference to, so that the runtime keeps the function."""
    integers: tuple[Any, ...] = ()
    """The integers among the arguments (None: another one), if they may decide sizes."""
    segments: Segments | None = None
    """The numbers of segments that they decide."""

    @property
    def title(self) -> str:
        """Name of its Python function."""
        name = re.sub(r"(_without_\d+|_in_order|_sized_\d+)+$", "", self.name)
        return re.sub(r"^__(?:inference|forward)_(__backward_)?(.+?)_\d+(?(1)_\d+)$", r"\2", name)

    @property
    def n_nodes(self) -> int:
        """Number of operations in its own graph."""
        return len(self.load_definition().node_def)

    @property
    def n_elements(self) -> int:
        """Number of elements of its tensor arguments, as far as their sizes are known."""
        return sum(arg.shape.num_elements() or 0 for arg in self.args if not is_resource(arg))

    @property
    def key(self) -> tuple[str, ...]:
        """Key that is equal for functions lowered to the same module."""
        return self.name, *(str(getattr(arg, "shape", None)) for arg in self.args)

    def load_definition(self) -> Any:
        """Return its FunctionDef."""
        return self.definition if self.definition is not None else definition_of(self.name)


def spec(tensor: Any) -> Any:
    """Return the TensorSpec of a tensor; a resource itself, since XLA asks it for its shape."""
    import tensorflow as tf

    return tensor if tensor.dtype == tf.resource else tf.TensorSpec(tensor.shape, tensor.dtype)


def is_resource(arg: Any) -> bool:
    """Return whether an argument of a `Function` is a resource instead of a specification."""
    return arg is None or bool(arg.dtype.name == "resource")


def in_order(function: Function) -> Function:
    """Return the function with its resources last, the only order that XLA's front end takes."""
    order = sorted(range(len(function.args)), key=lambda index: is_resource(function.args[index]))
    if order == list(range(len(function.args))):
        return function
    definition = copied(function.load_definition())
    inputs = list(definition.signature.input_arg)
    del definition.signature.input_arg[:]
    definition.signature.input_arg.extend(inputs[index] for index in order)
    definition.arg_attr.clear()
    definition.resource_arg_unique_id.clear()
    definition.signature.name = f"{function.name}_in_order"
    return Function(
        name=definition.signature.name,
        args=tuple(function.args[index] for index in order),
        definition=definition,
        keep=function.keep,
    )


def check_arguments(function: Function) -> None:
    """
    Refuse arguments for which XLA's front end ends the process, since it checks nothing itself.
    """
    for arg in function.args:
        _check_argument(function, arg)
    types = [arg.type for arg in function.load_definition().signature.input_arg]
    if types != [arg.dtype.as_datatype_enum for arg in function.args]:
        raise Unsupported(
            f"{function.title} is called with other types of arguments than it was traced with"
        )


def _check_argument(function: Function, arg: Any) -> None:
    from tensorflow.python.ops import gen_resource_variable_ops

    if is_resource(arg):
        if arg is None or not gen_resource_variable_ops.var_is_initialized_op(arg):
            raise Unsupported(
                f"{function.title} takes a resource that is not a variable with a value"
            )
    elif not arg.shape.is_fully_defined():
        fix = (
            ""
            if arg.shape.rank is None
            else "; batch(…, drop_remainder=True) fixes the sizes of a dataset's elements"
        )
        raise Unsupported(
            f"{function.title} takes a {arg.dtype.name} tensor of unknown size, {arg.shape}{fix}"
        )


def check_arrays(function: Function) -> None:
    """Refuse TensorArrays that grow: XLA silently drops writes beyond the end, and their inputs."""
    if any(map(grows_array, reached_from([function.name]))):
        raise Unsupported(
            f"{function.title} writes to a TensorArray that grows (dynamic_size=True), and XLA "
            "drops what is beyond its size; give it its final size: tf.TensorArray(dtype, size)"
        )


def definition_of(name: str) -> Any:
    """Return the FunctionDef of a function that the runtime knows."""
    from tensorflow.python.eager import context

    return context.context().get_function_def(name)


def called_by(node: Any) -> list[str]:
    """Return the functions in a NodeDef's attributes, by the names of these: a map has no order."""
    values = (node.attr[key] for key in sorted(node.attr))
    return [
        func.name
        for value in values
        for func in ([value.func] if value.HasField("func") else value.list.func)
    ]


def must_compile(node: Any) -> bool:
    """Return whether a FunctionDef, or the callee of a NodeDef, has jit_compile=True."""
    return "_XlaMustCompile" in node.attr and bool(node.attr["_XlaMustCompile"].b)


def reached_from(names: Iterable[str]) -> list[Any]:
    """Return the definitions of these functions and of their direct and indirect callees."""
    definitions: dict[str, Any] = {}

    def callees(name: str) -> list[str]:
        definitions[name] = definition_of(name)
        return [called for node in definitions[name].node_def for called in called_by(node)]

    return [definitions[name] for name in reached(names, callees)]


def grows_array(definition: Any) -> bool:
    """Return whether a function itself writes to a TensorArray that may grow."""
    return any(
        node.attr[_GROWS[node.op]].b or node.op == "TensorListResize"
        for node in definition.node_def
        if node.op in _GROWS
    )


def graph_of(definition: Any, shapes: Sequence[Any] | None) -> Any:
    """Return a function's FuncGraph with shapes inferred from those of its arguments (or None)."""
    from tensorflow.python.framework import function_def_to_graph

    return function_def_to_graph.function_def_to_graph(
        without_traced_shapes(definition), input_shapes=shapes
    )


def without_traced_shapes(definition: Any) -> Any:
    """Return a copy whose arguments do not require the shapes that they were traced with."""
    copy = copied(definition)
    for arg in copy.arg_attr.values():
        arg.attr.pop("_output_shapes", None)
    return copy


def copied(definition: Any, suffix: str = "") -> Any:
    """Return a copy of a FunctionDef, with a suffix to its name."""
    copy = type(definition)()
    copy.CopyFrom(definition)
    copy.signature.name += suffix
    return copy


def redirect(node: Any, old: str, new: str) -> None:
    """Let a NodeDef call another function."""
    for value in node.attr.values():
        for func in [value.func] if value.HasField("func") else value.list.func:
            func.name = new if func.name == old else func.name
