"""
The graphs of the probe's step: ops before and after Grappler, and how XLA covers them.

XLA compiles the ops of clusters; each other op has a reason, which XLA's errors are given too.
"""

from __future__ import annotations

import gc
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tfperf.compiler.compilable_parts import has_kernel
from pytest_tfperf.compiler.functions import Function, Unsupported, called_by, definition_of
from pytest_tfperf.compiler.runtime_graphs import Instance, instances, ops_in
from pytest_tfperf.compiler.source_lines import lines_in, traced_ops
from pytest_tfperf.compiler.step_calls import Probe
from pytest_tfperf.graphs import GraphOp, StepGraph, reached
from pytest_tfperf.op_types import (
    DYNAMIC,
    FUNCTION_ARGUMENTS,
    LEFT_OUT,
    NO_KERNEL,
    PYTHON,
    PYTHON_OPS,
    RANDOM,
    TEXT,
    UNASKED,
    XLA_SHELLS,
    computes,
)
from pytest_tfperf.text import and_more
from pytest_tfperf.values import Unknown

_TRIED_OPS = 20  # of one type, until one has a line: finding a line takes 0.1 ms
_DYNAMIC_OPS = frozenset({"Where", "Unique"})
"""
Ops with results of dynamic size.

Source: `allow_where_op` and `allow_unique_op` in
tensorflow/compiler/jit/compilability_check_util.cc.
"""
_RANDOM_OPS = frozenset(
    {
        "RandomUniform",
        "RandomShuffle",
        "RandomUniformInt",
        "RandomStandardNormal",
        "TruncatedNormal",
        "Multinomial",
    }
)
"""Ops with a hidden random state (IsStatefulRandomOp in compilability_check_util.cc)."""
_NEW = re.compile(r"/_\d+(?=/|$)")  # numbers added by the lowering of loops and branches
_MOVED = "/declustered"  # copied back out of a cluster (partially_decluster_pass.cc)
# "when trying to compile graph f[…] on XLA_CPU_JIT" in tf2xla_util.cc and xla_compiler.cc
# (tensorflow/compiler/tf2xla).
_FUNCTION = re.compile(r"trying to compile graph (\S+?)\[")
_MOST = 10


@dataclass(frozen=True, slots=True)
class InspectedGraph:
    """The graphs of a step, and the functions for an inspection of Grappler's passes."""

    graph: StepGraph | Unknown
    """The graphs, or the reason why they are unknown."""
    optimized: tuple[tuple[Function, int], ...] = ()
    """The functions that Grappler optimised, and how often a step calls each."""


def inspect_graph(probe: Probe, max_seconds: float = math.inf) -> InspectedGraph:
    """
    Return the graphs of the functions called in the probe's step, or a reason why they are unknown.

    Copies of the functions are instantiated, and none is run. A node takes 0.3 to 1.1 ms, as long
    as tracing it took. The time limit ends it between functions.
    """
    if probe.why is not None or probe.calls.why is not None:
        return InspectedGraph(Unknown(str(probe.why or probe.calls.why)))
    try:
        return _graph_of(instances(probe, max_seconds))
    except Unsupported as error:
        return InspectedGraph(Unknown(str(error)))
    except Exception as error:  # an error of TensorFlow's must not end the user's test
        why = f"the step's graphs could not be read: {type(error).__name__}: {error}"
        return InspectedGraph(Unknown(why))


def _graph_of(runs: Sequence[Instance]) -> InspectedGraph:
    auto = autoclusters() or any(instance.clustered is not None for instance in runs)
    inside: Counter[str] = Counter()
    outside: list[GraphOp] = []
    before: Counter[str] = Counter()
    after: Counter[str] = Counter()
    lines: dict[str, str] = {}
    allocated = 0
    for instance in runs:
        types, others = inside_and_outside(instance, auto)
        inside.update({op_type: count * instance.runs for op_type, count in types.items()})
        outside += others * instance.runs
        before.update(_types(instance.before, instance.runs))
        after.update(_types(instance.after, instance.runs))
        lines = {**_lines(instance), **lines}
        allocated = max(allocated, _largest_allocation(instance))
    graph = StepGraph(
        before=before,
        after=after,
        inside=inside,
        n_clusters=len({name for instance in runs for name in clusters_of(instance).values()}),
        outside=tuple(outside),
        lines=lines,
        allocated=allocated,
    )
    optimized = tuple(
        (instance.function, instance.runs)
        for instance in runs
        if instance.function is not None and instance.unclustered is not None
    )
    return InspectedGraph(graph, optimized)


def _types(nodes: Iterable[Any], runs: int) -> Counter[str]:
    """Count the ops of each type among nodes that run several times."""
    counted = Counter(op.node.op for op in ops_in(nodes))
    return Counter({op_type: count * runs for op_type, count in counted.items()})


def _lines(instance: Instance) -> dict[str, str]:
    """Return the user's line of one op of each type, among the first few of that type."""
    line_of = lines_in(instance.graph)
    tried: Counter[str] = Counter()
    found: dict[str, str] = {}
    for op in ops_in(instance.after):
        op_type = op.node.op
        if op_type in found or tried[op_type] == _TRIED_OPS:
            continue
        tried[op_type] += 1
        if line := line_of(op.node, op.owner):
            found[op_type] = line
    return found


def _largest_allocation(instance: Instance) -> int:
    """
    Return the bytes of the largest result that an op of an instance is certain to allocate.

    An op may pass on the buffer of an input of as many bytes (forward_input_or_allocate_output in
    tensorflow/core/framework/op_kernel.h), so only results larger than each input count. What may
    not run, what is computed from constants, results of Python and those of functions do not.
    """
    graph = instance.unclustered if instance.clustered is None else instance.clustered
    if graph is None:
        return 0
    nodes, op_of = {node.name: node for node in graph.node}, traced_ops(instance.graph)
    data = {name: [ref for ref in node.input if ref[0] != "^"] for name, node in nodes.items()}

    def size(ref: str) -> int | None:
        name, _, output = ref.partition(":")
        op = op_of(nodes[name])
        if op is None:
            return _constant_size(nodes[name])
        return (
            _n_bytes(op.outputs[int(output or 0)]) if int(output or 0) < len(op.outputs) else None
        )

    largest = 0
    for name in _certain(nodes, data):
        op = op_of(nodes[name])
        if op is None or op.type != nodes[name].op or not data[name]:
            continue
        own, taken = map(_n_bytes, op.outputs), [size(ref) for ref in data[name]]
        inputs = [n for n in taken if n is not None]
        if len(inputs) == len(taken):
            largest = max([largest, *(n for n in own if n is not None and n > max(inputs))])
    return largest


def _certain(nodes: Mapping[str, Any], data: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the nodes that run in each step, and compute something else than constants."""
    from tensorflow.python.framework import op_def_registry

    sources = {
        name: [ref.removeprefix("^").partition(":")[0] for ref in node.input]
        for name, node in nodes.items()
    }
    users: dict[str, list[str]] = {}
    takers: dict[str, list[str]] = {}
    for name in nodes:
        for source in sources[name]:
            users.setdefault(source, []).append(name)
        for ref in data[name]:
            takers.setdefault(ref.partition(":")[0], []).append(name)
    definitions = {name: op_def_registry.get(node.op) for name, node in nodes.items()}
    stateful = {name for name, one in definitions.items() if one is None or one.is_stateful}
    ends = [
        name
        for name, node in nodes.items()
        if node.op == "_Retval" or (name in stateful and not takers.get(name))
    ]
    given = [name for name, node in nodes.items() if not data[name] and node.op != "Const"]
    optional = reached(
        [name for name, node in nodes.items() if node.op == "Switch"],
        lambda name: users.get(name, ()),
    )
    varies = reached([*given, *stateful], lambda name: takers.get(name, ()))
    needed = reached(ends, lambda name: sources[name])
    return {
        name
        for name in needed & varies - optional
        if nodes[name].op not in PYTHON_OPS | XLA_SHELLS and not called_by(nodes[name])
    }


def _n_bytes(tensor: Any) -> int | None:
    """Return the bytes of a tensor, None if they are not known."""
    if tensor.dtype.name in ("resource", "variant", "string"):
        return None
    n = tensor.shape.num_elements()
    return None if n is None else int(n) * int(tensor.dtype.size)


def _constant_size(node: Any) -> int | None:
    """Return the bytes of a constant that Grappler made, None of other nodes."""
    import tensorflow as tf

    if node.op != "Const":
        return None
    value = node.attr["value"].tensor
    return int(tf.TensorShape(value.tensor_shape).num_elements()) * int(
        tf.as_dtype(value.dtype).size
    )


def inside_and_outside(instance: Instance, auto: bool) -> tuple[Counter[str], list[GraphOp]]:
    """Return the types of an instance's compute nodes that XLA compiles, and the other ones."""
    ops = [op for op in ops_in(instance.after) if computes(op.node.op)]
    if instance.compiled:
        return Counter(op.node.op for op in ops), []
    clustered, line = _clustered(instance), lines_in(instance.graph)
    inside = Counter(op.node.op for op in ops if op.compiled or op.top in clustered)
    outside = [
        GraphOp(
            name=op.name,
            op_type=op.node.op,
            line=line(op.node, op.owner),
            why=why_outside(op.node, auto),
            fused=_fused(op.node),
        )
        for op in ops
        if not op.compiled and op.top not in clustered
    ]
    return inside, outside


def clusters_of(instance: Instance) -> dict[str, str]:
    """
    Return the auto-clusters of an instance, by the common prefix of the nodes of their shells.

    The runtime shows the shells of clusters, not their contents.
    """
    nodes = () if instance.clustered is None else instance.clustered.node
    return {
        _prefix(node.name): node.attr["function"].func.name
        for node in nodes
        if node.op == "_XlaCompile"
    }


def _clustered(instance: Instance) -> frozenset[str]:
    """Return the names of the nodes in auto-clusters: those that the clustered graph lacks."""
    shells = clusters_of(instance)
    if not shells:
        return frozenset()
    nodes = instance.clustered.node
    outside = {_plain(node.name) for node in nodes if _prefix(node.name) not in shells}
    return frozenset(
        node.name
        for node in instance.unclustered.node
        if _plain(node.name) not in outside and node.op not in FUNCTION_ARGUMENTS
    )


def _prefix(name: str) -> str:
    return name.rpartition("/")[0]


def _plain(name: str) -> str:
    return _NEW.sub("", name.removesuffix(_MOVED))


def why_outside(node: Any, auto: bool) -> str:
    """Return the reason why XLA does not compile a node, with auto-clustering on or off."""
    if handles_text(node):
        return TEXT
    if node.op in PYTHON_OPS:
        return PYTHON
    # Grappler made ops that begin with _ of ops with kernels.
    if not has_kernel(node.op) and not node.op.startswith("_"):
        return NO_KERNEL
    if not auto:
        return UNASKED
    if node.op in _DYNAMIC_OPS:
        return DYNAMIC
    return RANDOM if node.op in _RANDOM_OPS else LEFT_OUT


def handles_text(node: Any) -> bool:
    """Return whether a NodeDef takes or gives strings."""
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    op_def = op_def_registry.get(node.op)
    return op_def is not None and tf.string.as_datatype_enum in _dtypes(
        (*op_def.input_arg, *op_def.output_arg), node.attr
    )


def autoclusters() -> bool:
    """
    Return whether auto-clustering is on in this process, on its CPU or its GPU.

    Source: tensorflow/compiler/jit/flags.cc.
    """
    import tensorflow as tf

    flags = os.environ.get("TF_XLA_FLAGS", "")
    jit = bool(tf.config.optimizer.get_jit()) or any(
        f"--tf_xla_auto_jit={level}" in flags for level in ("1", "2", "fusible", "single-gpu")
    )
    return jit and (
        "--tf_xla_cpu_global_jit" in flags or bool(tf.config.get_visible_devices("GPU"))
    )


def _fused(node: Any) -> tuple[str, ...]:
    """
    Return the types of the ops in a fused one: MatMul, BiasAdd and Relu in a `_FusedMatMul`.

    Source: `fused_ops` in tensorflow/core/grappler/optimizers/remapper.cc.
    """
    if "fused_ops" not in node.attr:
        return ()
    first = node.op.removeprefix("_").removeprefix("Mkl").removeprefix("Fused")
    return (first, *(name.decode() for name in node.attr["fused_ops"].list.s))


def _dtypes(args: Iterable[Any], attrs: Mapping[str, Any]) -> set[int]:
    """Return the types of an OpDef's arguments in a node with these attributes."""
    types: set[int] = set()
    for arg in args:
        if arg.type_list_attr in attrs:
            types |= set(attrs[arg.type_list_attr].list.type)
        types.add(attrs[arg.type_attr].type if arg.type_attr in attrs else arg.type)
    return types


def explain(error: BaseException) -> None:
    """Add a note with the ops that XLA cannot compile to an error about a function."""
    function = _FUNCTION.search(str(error))
    if function is None:
        return
    try:
        lines = list(_uncompilable_ops(function[1]))
    except Exception:  # the error itself matters more
        return
    if lines:
        note = "\n  ".join(["tfperf: XLA cannot compile", and_more(lines, _MOST, "\n  ")])
        _add_note(error, note)


def _uncompilable_ops(name: str) -> Iterator[str]:
    line = lines_in(_graph_named(name))
    for op in ops_in(definition_of(name).node_def):
        why = why_outside(op.node, auto=False)
        if why in (TEXT, PYTHON, NO_KERNEL):
            source = line(op.node, op.owner)
            at = f" at {source}" if source else ""
            yield f"{op.node.op} ({op.name}){at}: {why}"


def _graph_named(name: str) -> Any:
    """Return the graph of a function that is still referenced, with source lines, or None."""
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    functions = (
        thing
        for thing in gc.get_objects()
        if type(thing) is ConcreteFunction and thing.name.decode() == name
    )
    return next((function.graph for function in functions), None)


def _add_note(error: BaseException, note: str) -> None:
    if hasattr(error, "add_note"):
        error.add_note(note)
    elif hasattr(error, "_message"):
        # Python 3.10 has no notes; private: TensorFlow's errors keep their text here
        error._message = f"{error._message}\n{note}"
    else:
        error.args = (f"{error}\n{note}",)
