"""
Sums over segments (`tf.math.segment_sum` and its kind) in a form that XLA can compile.

XLA wants the number of segments beforehand, and the largest id decides it. The ids mostly come
from the arguments of a call by stateless ops, which run again on the same integers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from pytest_tfperf.compiler.functions import (
    Function,
    Segments,
    Unsupported,
    called_by,
    copied,
    definition_of,
    reached_from,
    redirect,
)
from pytest_tfperf.graphs import reached
from pytest_tfperf.op_types import FUNCTION_CALLS

SORTED_SEGMENTS = re.compile(r"Segment(Sum|Mean|Prod|Max|Min)")
_COPIES = count()


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
    """
    Return the value of a tensor in a function, by running the ops before it.

    Args:
        definition: FunctionDef of the function.
        argument: Gives the value of an argument, or None.
        ref: Name of the tensor in the FunctionDef.
        dtype: Its type.

    Raises:
        Unsupported: If an op has a state, or the value of an argument is not known.
    """
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
    """
    Add a copy of a function to the runtime.

    Args:
        name: Name of the function.
        sizes: Number of ids and segments of ops, by their names behind those of calls.
        path: Names of the calls around the function.
        keep: Takes what keeps the copy in the runtime.

    Returns:
        Name of the copy.
    """
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


_INT32 = 3  # types.proto
