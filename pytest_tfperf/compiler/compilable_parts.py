"""
The parts of a function that XLA can compile, around the operations that XLA has no kernel for.

Unlike auto-clustering, all that remains of a function is one part. Each tensor that comes from
outside it becomes an argument.

Of sums over segments XLA wants the number of segments beforehand, and the largest id decides it.
The ids mostly come from the arguments of a call by stateless ops, which run again on the same
integers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import count
from typing import Any

from pytest_tfperf.compiler.functions import (
    Function,
    Segments,
    Unsupported,
    called_by,
    copied,
    definition_of,
    graph_of,
    is_resource,
    reached_from,
    redirect,
    spec,
    without_traced_shapes,
)
from pytest_tfperf.graphs import reached
from pytest_tfperf.op_types import (
    BRANCHES,
    DATA_LOOPS,
    FUNCTION_CALLS,
    LOOPS,
    TRIVIAL,
    multiplies_matrices,
)

SORTED_SEGMENTS = re.compile(r"Segment(Sum|Mean|Prod|Max|Min)")
_COPIES = count()
_INT32 = 3  # types.proto
_FETCHES = ("IteratorGetNext", "IteratorGetNextSync", "IteratorGetNextAsOptional")
_GIVE_ELEMENTS = (*_FETCHES[:2], "OptionalGetValue")
_COMPUTE_NOTHING = re.compile(
    r"Iterator|MultiDeviceIterator|Optional|Print|String|AsString|LookupTable|Write\w*Summary"
    r"|Identity"
)


def has_segments(name: str) -> bool:
    """Return whether a function, or what it calls, has sums over segments."""
    try:
        return any(
            SORTED_SEGMENTS.fullmatch(node.op)
            for definition in reached_from([name])
            for node in definition.node_def
        )
    except Exception:  # the step is the user's, and goes on; the inspection says what is missing
        return False


def segments_of(function: Function) -> Segments | None:
    """Return the segments in a call, None if its integers alone do not decide them."""
    arguments = definition_of(function.name).signature.input_arg
    given = {arg.name: one for arg, one in zip(arguments, function.integers, strict=True)}
    try:
        return tuple(_segments_in(function.name, given.get, ""))
    except Exception:  # an op before the ids does not run again, and XLA's reason is shown
        return None


def with_segments(function: Function) -> Function:
    """Return a function as a copy whose sums take their numbers of segments, if these are known."""
    if not function.segments:
        return function
    keep: list[Any] = [function.keep]
    sizes = {path: (n_ids, n_segments) for path, n_ids, n_segments in function.segments}
    name = _with_segments(function.name, sizes, "", keep)
    return replace(function, name=name, keep=keep)


def _segments_in(
    name: str, argument: Callable[[str], Any], path: str
) -> Iterator[tuple[str, int, int]]:
    definition = definition_of(name)
    for node in definition.node_def:
        if SORTED_SEGMENTS.fullmatch(node.op):
            ids = _value(definition, argument, node.input[1], node.attr["Tindices"].type).numpy()
            yield path + node.name, ids.size, int(ids.max(initial=-1)) + 1
        elif node.op in FUNCTION_CALLS:
            (called,) = called_by(node)
            outer = _arguments(definition, argument, node, called)
            yield from _segments_in(called, outer, f"{path}{node.name}/")


def _arguments(
    definition: Any, argument: Callable[[str], Any], call: Any, called: str
) -> Callable[[str], Any]:
    """Return what gives the arguments of a call in a function their values."""
    inputs = definition_of(called).signature.input_arg
    types = {arg.name: (ref, arg.type) for arg, ref in zip(inputs, call.input, strict=False)}
    return lambda name: _value(definition, argument, *types[name])


def _value(definition: Any, argument: Callable[[str], Any], ref: str, dtype: int) -> Any:
    """Return the value of a tensor in a function, by running the ops before it."""
    from tensorflow.python.eager import context

    nodes = {node.name: node for node in definition.node_def}
    before = reached([_owner(ref)], lambda name: map(_owner, _data(nodes.get(name))))
    if any(_has_state(nodes[name]) for name in before & nodes.keys()):
        raise Unsupported(f"{ref} comes from an op with a state")
    own = [arg for arg in definition.signature.input_arg if arg.name in before]
    values = [argument(arg.name) for arg in own]
    if any(value is None for value in values):
        raise Unsupported(f"{ref} comes from other arguments than integers")
    if ":" not in ref:
        return values[0]
    part = type(definition)()
    part.signature.name = f"segments_{next(_COPIES)}"
    part.signature.input_arg.extend(own)
    part.signature.output_arg.add(name="ids", type=dtype)
    part.ret["ids"] = ref
    for name in before & nodes.keys():
        part.node_def.add().CopyFrom(nodes[name])
        part.node_def[-1].ClearField("input")
        part.node_def[-1].input.extend(_data(nodes[name]))
    runtime = context.context()
    runtime.add_function_def(part)
    try:
        return runtime.call_function(part.signature.name.encode(), values, 1)[0]
    finally:
        runtime.remove_function(part.signature.name)


def _with_segments(
    name: str, sizes: Mapping[str, tuple[int, int]], path: str, keep: list[Any]
) -> str:
    """Add a copy of a function to the runtime."""
    from tensorflow.python.eager.polymorphic_function import atomic_function

    copy = copied(definition_of(name), f"_sized_{next(_COPIES)}")
    for node in list(copy.node_def):
        if path + node.name in sizes:
            _give_sizes(copy, node, *sizes[path + node.name])
        elif node.op in FUNCTION_CALLS and has_segments(called_by(node)[0]):
            (called,) = called_by(node)
            redirect(node, called, _with_segments(called, sizes, f"{path}{node.name}/", keep))
    _drop_unused(copy)
    keep.append(atomic_function.from_function_def(copy, None))
    return str(copy.signature.name)


def _give_sizes(definition: Any, node: Any, n_ids: int, n_segments: int) -> None:
    """
    Let a node of a FunctionDef take the number of segments, and constants for computed ids.

    XLA may not compile the ops before the ids. Other values of the ids, and of the counts of a
    mean, make the same program.
    """
    from tensorflow.python.framework import tensor_util

    def constant(name: str, value: int, dtype: int, *shape: int) -> str:
        made = definition.node_def.add(name=f"{node.name}/{name}", op="Const")
        made.attr["dtype"].type = dtype
        made.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(value, dtype, shape))
        return f"{made.name}:output:0"

    kind, (data, ids, *controls) = node.op.removeprefix("Segment"), node.input
    if ":" in ids:
        known = constant("ids", 0, node.attr["Tindices"].type, n_ids)
        for user in definition.node_def:
            user.input[:] = [known if ref == ids else ref for ref in user.input]
        ids = known
    total = node if kind != "Mean" else definition.node_def.add()
    total.CopyFrom(node)
    total.op = f"UnsortedSegment{kind if kind != 'Mean' else 'Sum'}"
    total.attr["Tnumsegments"].type = _INT32
    total.input[:] = [data, ids, constant("n", n_segments, _INT32), *controls]
    if kind == "Mean":
        total.name = f"{node.name}/sum"
        mean = definition.node_def.add(name=f"{node.name}/mean", op="Div")
        mean.attr["T"].type = node.attr["T"].type
        counts = constant("counts", 1, node.attr["T"].type)
        mean.input[:] = [f"{total.name}:output:0", counts]
        node.op, node.input[:] = "Identity", [f"{mean.name}:z:0"]
        node.attr.pop("Tindices")


def _drop_unused(definition: Any) -> None:
    """Leave out ops without a state that nothing takes."""
    nodes = {node.name: node for node in definition.node_def}
    results = [*map(_owner, definition.ret.values()), *definition.control_ret.values()]
    used = reached(
        [*results, *(name for name, node in nodes.items() if _has_state(node))],
        lambda name: [_owner(ref) for ref in (nodes[name].input if name in nodes else ())],
    )
    kept = [node for name, node in nodes.items() if name in used]
    del definition.node_def[:]
    definition.node_def.extend(kept)


def _has_state(node: Any) -> bool:
    from tensorflow.python.framework import op_def_registry

    known = op_def_registry.get(node.op)
    return known is None or bool(known.is_stateful)


def _data(node: Any) -> list[str]:
    """Return the tensors that a node takes; none for an argument."""
    return [] if node is None else [ref for ref in node.input if not ref.startswith("^")]


def _owner(ref: str) -> str:
    """Return the node or argument that a reference names."""
    return str(ref.removeprefix("^").partition(":")[0])


def parts_of(
    function: Function, batch: int | None, steps: float
) -> Iterator[tuple[Function, float]]:
    """
    Yield the parts of a function that XLA can compile, and how often each runs in one call.

    `batch` is the size of elements whose signature leaves it open, and `steps` the steps in one
    call. Raises Unsupported if an operation left out may compute something, or a part runs an
    unknown number of times.
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
    tensors = {
        inner: graph.get_tensor_by_name(outer) for inner, outer in names.items() if ":" in inner
    }
    rest = _without(function, definition, foreign, tensors)
    if rest is not None:
        yield rest, 1.0


def _parts_within(
    function: Function, op: Any, args: tuple[Any, ...], batch: int | None, steps: float
) -> Iterator[tuple[Function, float]]:
    """Yield the parts of the functions that an operation without a kernel calls."""
    called = [Function(name=name, args=args) for name in called_by(op.node_def)]
    if op.type in FUNCTION_CALLS:
        yield from parts_of(called[0], batch, steps)
    elif op.type in LOOPS:
        body = Function(name=op.get_attr("body").name, args=args)
        in_loop = _iterations(function, body, steps)
        yield from ((part, runs * in_loop) for part, runs in parts_of(body, batch, steps))
    elif op.type in DATA_LOOPS:
        body = _dataset_body(op, args, batch)
        for part, runs in parts_of(body, batch, steps):
            _check_steps(function, "a dataset", steps)
            yield part, runs * steps
    elif op.type in BRANCHES:
        branches = [
            list(parts_of(Function(name=branch.name, args=args[1:]), batch, steps))
            for branch in called
        ]
        if sum(map(bool, branches)) > 1:
            raise Unsupported(
                f"{function.title} has branches that XLA cannot compile as a whole, and which of "
                "them runs is not known"
            )
        yield from (part for parts in branches for part in parts)
    elif called or not _computes_nothing(op):
        sized = SORTED_SEGMENTS.fullmatch(op.type)
        why = (
            "since the number of segments depends on data; "
            f"tf.math.unsorted_segment_{sized[1].lower()} takes it as num_segments"
            if sized
            else "and which may compute something"
        )
        raise Unsupported(
            f"{function.title} has the operation {op.type} ({op.name}), which XLA cannot compile, "
            f"{why}"
        )


def _iterations(function: Function, body: Function, steps: float) -> float:
    """Return how often the body of a loop runs: it fetches from an iterator once a step."""
    fetches = _n_fetches(body.name)
    if not fetches:
        raise Unsupported(
            f"{function.title} has a loop that XLA cannot compile, and how often it runs is not "
            "known"
        )
    _check_steps(function, "an iterator", steps)
    return steps / fetches


def _check_steps(function: Function, data: str, steps: float) -> None:
    if steps <= 1:
        raise Unsupported(
            f"{function.title} loops over {data} an unknown number of times; say how many "
            "steps a call has: steps_per_call="
        )


def _dataset_body(op: Any, args: Sequence[Any], batch: int | None) -> Function:
    """
    Return the body of a loop over a dataset with its arguments: state, element, other values.

    The op's own inputs are the dataset, the initial state and the others (dataset_ops.cc). The
    element's shapes are those that the body was traced with.
    """
    import tensorflow as tf

    name, n_state = op.get_attr("f").name, len(op.get_attr("Tstate"))
    definition = definition_of(name)
    inputs = definition.signature.input_arg
    state, others = args[1 : 1 + n_state], args[1 + n_state :]
    element = []
    for place in range(n_state, len(inputs) - len(others)):
        shapes = definition.arg_attr[place].attr["_output_shapes"].list.shape
        shape = tf.TensorShape(shapes[0] if shapes else None)
        if batch is not None and shape.rank and shape[0] is None:
            shape = tf.TensorShape([batch]).concatenate(shape[1:])
        element.append(tf.TensorSpec(shape, tf.as_dtype(inputs[place].type)))
    return Function(name=name, args=(*state, *element, *others))


def _n_fetches(name: str) -> int:
    nodes = definition_of(name).node_def
    return sum(node.op in _FETCHES for node in nodes) + sum(
        _n_fetches(called) for node in nodes for called in called_by(node)
    )


def _is_foreign(name: str) -> bool:
    """Return whether a function, or what it calls, holds an operation without an XLA kernel."""
    types = {node.op for definition in reached_from([name]) for node in definition.node_def}
    return not all(map(has_kernel, types))


@cache
def has_kernel(op_type: str) -> bool:
    """Return whether XLA can compile ops of a type."""
    from tensorflow.python.framework import kernels

    return any(
        kernel.device_type == "XLA_CPU_JIT"
        for kernel in kernels.get_registered_kernels_for_op(op_type).kernel
    )


def _graph(
    definition: Any, args: Sequence[Any], batch: int | None
) -> tuple[Any, Mapping[str, str]]:
    """
    Return the function as a graph, with shapes inferred from its arguments and the batch.

    The mapping gives the name in the graph of each tensor of the definition.
    """
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
        # TensorFlow infers the shape only if it has the table at hand.
        if op.type == "LookupTableFindV2" and op.outputs[0].shape.rank is None:
            _, keys, default = op.inputs
            op.outputs[0].set_shape(keys.shape.concatenate(default.shape))
    return graph, names


def _foreign(graph: Any) -> dict[str, Any]:
    """
    Return the operations to leave out, by name.

    These have no kernel, handle text, or take a variant or resource from another one left out, or
    a tensor of unknown size with which they compute nothing.
    """
    import tensorflow as tf

    foreign: dict[str, Any] = {}
    for op in graph.get_operations():
        if op.type == "Placeholder":
            continue
        opaque = any(
            tensor.dtype in (tf.variant, tf.resource)
            and (tensor.op.name in foreign or _is_variant_argument(tensor))
            for tensor in op.inputs
        )
        unsized = any(
            tensor.op.name in foreign and not tensor.shape.is_fully_defined()
            for tensor in op.inputs
        )
        inside = any(_is_foreign(name) for name in called_by(op.node_def))
        left_out = inside or not has_kernel(op.type) or _handles_text(op)
        if opaque or left_out or (unsized and _computes_nothing(op)):
            foreign[op.name] = op
    return foreign


def _is_variant_argument(tensor: Any) -> bool:
    return bool(tensor.op.type == "Placeholder" and tensor.dtype.name == "variant")


def _handles_text(op: Any) -> bool:
    return any(tensor.dtype.name == "string" for tensor in (*op.inputs, *op.outputs))


def _computes_nothing(op: Any) -> bool:
    """Return whether an operation computes with no floating-point number and multiplies nothing."""
    if _COMPUTE_NOTHING.match(op.type):
        return True
    if "PyFunc" in op.type or multiplies_matrices(op.type):
        return False
    types = [tensor.dtype for tensor in (*op.inputs, *op.outputs)]
    return _handles_text(op) or all(dtype.is_integer or dtype.is_bool for dtype in types)


def _argument(tensor: Any, graph: Any, args: Sequence[Any]) -> Any:
    """Return the argument for an input of a call: for a resource the caller's own, None if lost."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    if tensor.dtype.name != "resource":
        return spec(tensor)
    return next((arg for own, arg in zip(graph.inputs, args, strict=True) if own is tensor), None)


def _without(
    function: Function, definition: Any, foreign: Mapping[str, Any], tensors: Mapping[str, Any]
) -> Function | None:
    """Return what remains of a function, as a function with other arguments and results."""
    kept = [node for node in definition.node_def if node.name not in foreign]
    if all(node.op in TRIVIAL for node in kept):
        return None
    rest = type(definition)()
    rest.signature.name = f"{function.name}_without_{len(foreign)}"
    rest.node_def.extend(kept)
    names = (arg.name for arg in definition.signature.input_arg)
    own = dict(zip(names, function.args, strict=True))
    wanted: dict[str, Any] = {}
    for node in rest.node_def:
        for ref in _connect_to_arguments(node, foreign):
            wanted[ref] = own[ref] if ref in own else spec(tensors[ref])
    wanted = dict(sorted(wanted.items(), key=lambda item: is_resource(item[1])))
    _add_arguments(rest, wanted)
    _add_results(rest, definition, foreign, tensors)
    return Function(
        name=rest.signature.name, args=tuple(wanted.values()), definition=rest, keep=function.keep
    )


def _connect_to_arguments(node: Any, foreign: Mapping[str, Any]) -> list[str]:
    """Let a node take from arguments what operations left out gave it; return these inputs."""
    inputs = [ref for ref in node.input if not (ref.startswith("^") and ref[1:] in foreign)]
    outside = [
        ref
        for ref in inputs
        if not ref.startswith("^") and (":" not in ref or ref.partition(":")[0] in foreign)
    ]
    del node.input[:]
    node.input.extend(_argument_name(ref) if ref in outside else ref for ref in inputs)
    return outside


def _add_arguments(rest: Any, wanted: Mapping[str, Any]) -> None:
    signature = rest.signature
    for ref, arg in wanted.items():
        if arg is None:
            raise Unsupported(
                f"{signature.name} uses a resource that cannot be traced to a variable"
            )
        signature.input_arg.add(name=_argument_name(ref), type=arg.dtype.as_datatype_enum)


def _add_results(
    rest: Any, definition: Any, foreign: Mapping[str, Any], tensors: Mapping[str, Any]
) -> None:
    """Add the function's own results, and those that the operations left out would take."""
    signature = rest.signature
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
    """Return the name of the argument that replaces a tensor."""
    return re.sub(r"\W", "_", ref).lower()
