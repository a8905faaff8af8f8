"""
What of a function XLA can compile: the function itself, or its parts around the operations that XLA has no kernel for.

As auto-clustering does it, but whole: what remains of a function is one part, in which each tensor from without is an argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pytest_tfperf.compiler.functions import (
    called_by,
    definition_of,
    graph_of,
    grows_array,
    reached_from,
    without_traced_shapes,
)
from pytest_tfperf.op_types import BRANCHES, FUNCTION_CALLS, LOOPS, TRIVIAL

_FETCHES = ("IteratorGetNext", "IteratorGetNextSync", "IteratorGetNextAsOptional")
_GIVE_ELEMENTS = (*_FETCHES[:2], "OptionalGetValue")
_COMPUTE_NOTHING = re.compile(
    r"Iterator|MultiDeviceIterator|Optional|Print|String|AsString|LookupTable|Write\w*Summary|Identity"
)


class Cannot(Exception):
    """Why a function has no modules that stand for all it computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """
    A function in TensorFlow's runtime with what it is called with: a TensorSpec, or a resource itself.

    `definition` is there where the runtime does not know the function yet; `keep` is what keeps it alive.
    """

    name: str
    args: tuple[Any, ...]
    definition: Any = None
    keep: Any = None

    @property
    def title(self) -> str:
        """The name its Python function has."""
        name = re.sub(r"(_without_\d+|_in_order)+$", "", self.name)
        return re.sub(r"^__(?:inference|forward)_(__backward_)?(.+?)_\d+(?(1)_\d+)$", r"\2", name)

    @property
    def n_nodes(self) -> int:
        """Operations in its own graph."""
        return len(_definition_of(self).node_def)

    @property
    def n_elements(self) -> int:
        """Of the tensors that it is called with, as far as their sizes are known."""
        return sum(arg.shape.num_elements() or 0 for arg in self.args if not is_resource(arg))

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for functions that are lowered to the same module."""
        return self.name, *(str(getattr(arg, "shape", None)) for arg in self.args)


def spec(tensor: Any) -> Any:
    """What a tensor looks like; a resource itself, since XLA asks a variable for its shape."""
    import tensorflow as tf

    return tensor if tensor.dtype == tf.resource else tf.TensorSpec(tensor.shape, tensor.dtype)


def is_resource(arg: Any) -> bool:
    """Whether an argument is a resource, and so itself instead of a specification."""
    return arg is None or bool(arg.dtype.name == "resource")


def in_order(function: Function) -> Function:
    """The function with its resources as last arguments, which is the only order that XLA's front end takes."""
    order = sorted(range(len(function.args)), key=lambda index: is_resource(function.args[index]))
    if order == list(range(len(function.args))):
        return function
    definition = type(_definition_of(function))()
    definition.CopyFrom(_definition_of(function))
    given = list(definition.signature.input_arg)
    del definition.signature.input_arg[:]
    definition.signature.input_arg.extend(given[index] for index in order)
    definition.arg_attr.clear()
    definition.resource_arg_unique_id.clear()
    definition.signature.name = f"{function.name}_in_order"
    args = tuple(function.args[index] for index in order)
    return Function(
        name=definition.signature.name, args=args, definition=definition, keep=function.keep
    )


def check_arguments(function: Function) -> None:
    """
    Look for what XLA's front end ends the process for, since it checks nothing itself.

    Raises:
        Cannot: If it cannot take the arguments.
    """
    from tensorflow.python.ops import gen_resource_variable_ops

    types = [arg.type for arg in _definition_of(function).signature.input_arg]
    for arg in function.args:
        if arg is None or (
            is_resource(arg) and not gen_resource_variable_ops.var_is_initialized_op(arg)
        ):
            raise Cannot(f"{function.title} is given a resource that is no variable with a value")
        if not is_resource(arg) and not arg.shape.is_fully_defined():
            fix = (
                ""
                if arg.shape.rank is None
                else "; batch(…, drop_remainder=True) makes that of a dataset's elements known"
            )
            raise Cannot(
                f"{function.title} is given a {arg.dtype.name} tensor whose size is not known, {arg.shape}{fix}"
            )
    if types != [arg.dtype.as_datatype_enum for arg in function.args]:
        raise Cannot(
            f"{function.title} is called with other types of arguments than it was traced with"
        )


def check_arrays(function: Function) -> None:
    """
    Look for what XLA leaves out without a word: what is written beyond the end of a TensorArray, with all that led to it.

    Raises:
        Cannot: If the function or what it calls may write so.
    """
    if any(map(grows_array, reached_from([function.name]))):
        raise Cannot(
            f"{function.title} writes to a TensorArray that grows (dynamic_size=True), and XLA drops what is beyond its size; give "
            "it the size that it will have: tf.TensorArray(dtype, size)"
        )


def parts_of(
    function: Function, batch: int | None, steps: float
) -> Iterator[tuple[Function, float]]:
    """
    The parts of a function that XLA can compile, and how often each runs in a call, which holds so many steps.

    Raises:
        Cannot: If what is left out may compute something, or if it is not known how often a part runs.
    """
    definition = definition_of(function.name)
    if all(node.op in TRIVIAL for node in definition.node_def):
        return
    if not _is_foreign(function.name) and not any(
        getattr(arg, "dtype", None) in ("string", "variant") for arg in function.args
    ):
        yield function, 1.0
        return
    graph, names = _graph(definition, function.args, batch)
    foreign = _foreign(graph)
    for op in foreign.values():
        args = tuple(_argument(tensor, graph, function.args) for tensor in op.inputs)
        yield from _parts_within(function, op, args, batch, steps)
    rest = _without(
        function,
        definition,
        foreign,
        {inner: graph.get_tensor_by_name(outer) for inner, outer in names.items() if ":" in inner},
    )
    if rest is not None:
        yield rest, 1.0


def _parts_within(
    function: Function, op: Any, args: tuple[Any, ...], batch: int | None, steps: float
) -> Iterator[tuple[Function, float]]:
    """The parts of the functions that an operation calls which cannot be compiled as a whole."""
    called = [Function(name=name, args=args) for name in called_by(op.node_def)]
    if op.type in FUNCTION_CALLS:
        yield from parts_of(called[0], batch, steps)
    elif op.type in LOOPS:
        body = Function(name=op.get_attr("body").name, args=args)
        in_loop = _iterations(function, body, steps)
        yield from ((part, runs * in_loop) for part, runs in parts_of(body, batch, steps))
    elif op.type in BRANCHES:
        branches = [
            list(parts_of(Function(name=branch.name, args=args[1:]), batch, steps))
            for branch in called
        ]
        if sum(map(bool, branches)) > 1:
            raise Cannot(
                f"{function.title} has branches that XLA cannot compile as a whole, and which of them runs is not known"
            )
        yield from (part for parts in branches for part in parts)
    elif called or not _computes_nothing(op):
        raise Cannot(
            f"{function.title} has the operation {op.type} ({op.name}), which XLA cannot compile, and which may compute something"
        )


def _iterations(function: Function, body: Function, steps: float) -> float:
    """How often a loop's body runs that fetches from an iterator: once a step."""
    fetches = _n_fetches(body.name)
    if not fetches:
        raise Cannot(
            f"{function.title} has a loop that XLA cannot compile, and how often it runs is not known"
        )
    if steps <= 1:
        raise Cannot(
            f"{function.title} loops over an iterator, and how often is not known; say how many steps a call has: steps_per_call="
        )
    return steps / fetches


def _n_fetches(name: str) -> int:
    nodes = definition_of(name).node_def
    return sum(node.op in _FETCHES for node in nodes) + sum(
        _n_fetches(called) for node in nodes for called in called_by(node)
    )


def _definition_of(function: Function) -> Any:
    return function.definition if function.definition is not None else definition_of(function.name)


def _is_foreign(name: str) -> bool:
    """Whether a function holds an operation, itself or in what it calls, that XLA has no kernel for."""
    return not all(
        map(
            has_kernel,
            {node.op for definition in reached_from([name]) for node in definition.node_def},
        )
    )


@cache
def has_kernel(op_type: str) -> bool:
    """Whether XLA can compile ops of a type."""
    from tensorflow.python.framework import kernels

    return any(
        kernel.device_type == "XLA_CPU_JIT"
        for kernel in kernels.get_registered_kernels_for_op(op_type).kernel
    )


def _graph(
    definition: Any, args: Sequence[Any], batch: int | None
) -> tuple[Any, Mapping[str, str]]:
    """The function as a graph with all shapes that follow from its arguments' and the batch, and what its tensors are named there."""
    from tensorflow.python.framework import function_def_to_graph

    sized = without_traced_shapes(definition)
    for node in sized.node_def:
        if node.op in _GIVE_ELEMENTS and batch is not None:
            for shape in node.attr["output_shapes"].list.shape:
                if shape.dim and shape.dim[0].size < 0:
                    shape.dim[0].size = batch
    shapes = [getattr(arg, "shape", None) for arg in args]
    _, names = function_def_to_graph.function_def_to_graph_def(sized, shapes)
    graph = graph_of(sized, shapes)
    for op in graph.get_operations():
        if (
            op.type == "LookupTableFindV2" and op.outputs[0].shape.rank is None
        ):  # TensorFlow infers it only with the table at hand
            _, keys, default = op.inputs
            op.outputs[0].set_shape(keys.shape.concatenate(default.shape))
    return graph, names


def _foreign(graph: Any) -> dict[str, Any]:
    """The operations to leave out, by name: those without a kernel, what handles text, and what takes from these what is no array."""
    import tensorflow as tf

    found: dict[str, Any] = {}
    for op in graph.get_operations():
        if op.type == "Placeholder":
            continue
        unknown = any(
            t.dtype in (tf.variant, tf.resource) and (t.op.name in found or _is_variant_argument(t))
            for t in op.inputs
        )
        inside = any(_is_foreign(name) for name in called_by(op.node_def))
        if unknown or inside or not has_kernel(op.type) or _handles_text(op):
            found[op.name] = op
    return found


def _is_variant_argument(tensor: Any) -> bool:
    return bool(tensor.op.type == "Placeholder" and tensor.dtype.name == "variant")


def _handles_text(op: Any) -> bool:
    return any(tensor.dtype.name == "string" for tensor in (*op.inputs, *op.outputs))


def _computes_nothing(op: Any) -> bool:
    return bool(_COMPUTE_NOTHING.match(op.type)) or (_handles_text(op) and "PyFunc" not in op.type)


def _argument(tensor: Any, graph: Any, args: Sequence[Any]) -> Any:
    """What a call gives for an input: of a resource the one that its caller was given, None if that is not known."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    if tensor.dtype.name != "resource":
        return spec(tensor)
    return next(
        (arg for given, arg in zip(graph.inputs, args, strict=True) if given is tensor), None
    )


def _without(
    function: Function, definition: Any, foreign: Mapping[str, Any], tensors: Mapping[str, Any]
) -> Function | None:
    """What remains of a function, as one with other arguments and results; None if nothing is left that computes."""
    kept = [node for node in definition.node_def if node.name not in foreign]
    if all(node.op in TRIVIAL for node in kept):
        return None
    rest = type(definition)()
    rest.signature.name = f"{function.name}_without_{len(foreign)}"
    rest.node_def.extend(kept)
    given = dict(
        zip((arg.name for arg in definition.signature.input_arg), function.args, strict=True)
    )
    wanted: dict[str, Any] = {}
    for node in rest.node_def:
        inputs = [ref for ref in node.input if not (ref.startswith("^") and ref[1:] in foreign)]
        outside = {
            ref
            for ref in inputs
            if not ref.startswith("^") and (":" not in ref or ref.partition(":")[0] in foreign)
        }
        wanted |= {
            ref: given[ref] if ref in given else spec(tensors[ref])
            for ref in inputs
            if ref in outside
        }
        del node.input[:]
        node.input.extend(_argument_name(ref) if ref in outside else ref for ref in inputs)
    wanted = dict(sorted(wanted.items(), key=lambda item: is_resource(item[1])))
    _add_signature(rest, definition, foreign, wanted, tensors)
    return Function(
        name=rest.signature.name, args=tuple(wanted.values()), definition=rest, keep=function.keep
    )


def _add_signature(
    rest: Any,
    definition: Any,
    foreign: Mapping[str, Any],
    wanted: Mapping[str, Any],
    tensors: Mapping[str, Any],
) -> None:
    """Arguments: what is wanted. Results: the function's own, and what is computed for the operations left out."""
    signature = rest.signature
    for ref, arg in wanted.items():
        if arg is None:
            raise Cannot(f"{signature.name} uses a resource that cannot be traced to a variable")
        signature.input_arg.add(name=_argument_name(ref), type=arg.dtype.as_datatype_enum)
    names = {node.name for node in rest.node_def}
    results = [
        *definition.ret.values(),
        *(ref for node in definition.node_def if node.name in foreign for ref in node.input),
    ]
    for ref in dict.fromkeys(results):
        if (
            ref.partition(":")[0] in names
            and ":" in ref
            and tensors[ref].dtype.name not in ("variant", "resource", "string")
        ):
            name = _argument_name(ref) + "_result"
            signature.output_arg.add(name=name, type=tensors[ref].dtype.as_datatype_enum)
            rest.ret[name] = ref
    for name, node in definition.control_ret.items():
        if node in names:
            signature.control_output.append(name)
            rest.control_ret[name] = node
    signature.is_stateful = definition.signature.is_stateful


def _argument_name(ref: str) -> str:
    """The name of the argument that stands for a tensor."""
    return re.sub(r"\W", "_", ref).lower()
