"""Coverage of a step by XLA: compiled ops, and reasons for the others."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from pytest_tfperf.compiler.lowering.compilable_parts import has_kernel
from pytest_tfperf.compiler.runtime_graphs import Instance, InstanceNode, ops_in
from pytest_tfperf.compiler.source_lines import lines_in
from pytest_tfperf.compiler.xla_clusters import cluster_of
from pytest_tfperf.op_types import (
    DYNAMIC,
    LEFT_OUT,
    NO_KERNEL,
    PYTHON,
    PYTHON_OPS,
    RANDOM,
    TEXT,
    UNASKED,
    computes,
)
from pytest_tfperf.recorded_graphs import Cluster, GraphOp

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


def clusters_in(instance: Instance, auto: bool) -> tuple[list[Cluster], list[GraphOp]]:
    """
    Return the clusters of one run of an instance, and its compute nodes outside them.

    Each call of a function with jit_compile=True is a cluster, unless auto-clustering took it into
    one of its own.
    """
    ops = [op for op in ops_in(instance.after) if computes(op.node.op)]
    if instance.compiled is not None:
        return [_asked(instance.compiled.name, ops)], []
    line = lines_in(instance.graph)

    def listed(op: InstanceNode, why: str) -> GraphOp:
        return GraphOp(
            name=op.name,
            op_type=op.node.op,
            line=line(op.node, op.owner),
            why=why,
            fused=_fused(op.node),
        )

    if instance.clustered is None:
        names = {}
    else:
        names = cluster_of(instance.unclustered, instance.clustered)
    clusters = [
        Cluster(
            name=name,
            nodes=tuple(listed(op, "") for op in ops if names.get(op.top) == name),
            asked=False,
        )
        for name in dict.fromkeys(names.values())
    ]
    rest = [op for op in ops if op.top not in names]
    calls = dict.fromkeys(op.compiled for op in rest if op.compiled)
    clusters += [_asked(call[1], [op for op in rest if op.compiled == call]) for call in calls]
    return clusters, [listed(op, why_outside(op.node, auto)) for op in rest if op.compiled is None]


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


def _asked(name: str, ops: Iterable[InstanceNode]) -> Cluster:
    """
    Return a cluster of jit_compile=True.

    It always runs. Nobody needs its source lines, which take long to find.
    """
    return Cluster(
        name=name,
        nodes=tuple(GraphOp(name=op.name, op_type=op.node.op, line=None, why="") for op in ops),
        asked=True,
    )
