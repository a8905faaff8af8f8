"""
Coverage of a step by XLA: compiled ops, reasons for the others, and each of them in its errors.
"""

from __future__ import annotations

import gc
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pytest_tfperf.compiler.compilable_parts import has_kernel
from pytest_tfperf.compiler.functions import definition_of
from pytest_tfperf.compiler.runtime_graphs import Instance, ops_in
from pytest_tfperf.compiler.source_lines import lines_in
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
    computes,
)
from pytest_tfperf.recorded_graphs import GraphOp
from pytest_tfperf.text import and_more

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
    return op_def is not None and tf.string.as_datatype_enum in _types(
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
        "--tf_xla_cpu_global_jit" in flags or bool(tf.config.list_physical_devices("GPU"))
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


def _types(args: Iterable[Any], attrs: Mapping[str, Any]) -> set[int]:
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
    line = lines_in(_graph_of(name))
    for op in ops_in(definition_of(name).node_def):
        why = why_outside(op.node, auto=False)
        if why in (TEXT, PYTHON, NO_KERNEL):
            source = line(op.node, op.owner)
            at = f" at {source}" if source else ""
            yield f"{op.node.op} ({op.name}){at}: {why}"


def _graph_of(name: str) -> Any:
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
