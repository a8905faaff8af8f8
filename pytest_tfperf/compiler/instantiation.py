"""
A function's graphs as TensorFlow's runtime makes them, without running it: with auto-clusters, or with nothing clustered.

A function that is called with a cancelled CancellationManager is instantiated, with all its passes, and then not started
(FunctionLibraryRuntimeImpl::Run in tensorflow/core/common_runtime/function.cc). So nothing is computed, and no variable changes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from pytest_tfperf.compiler.definitions import called_by, definition_of, must_compile
from pytest_tfperf.compiler.partition import Cannot, Function, is_resource

_COPY = "_without_clusters"
_REQUESTS = ("_XlaCompile", "_XlaScope", "_XlaMustCompile", "_XlaSeparateCompiledGradients")
_MIN_CLUSTER = re.compile(r"--tf_xla_min_cluster_size=(\d+)")
_MIN_CLUSTER_DEFAULT = 4  # tensorflow/compiler/jit/flags.cc
_NO_CLUSTER = 2**31 - 1
_TRIES = 3  # what other threads run at the same time may mix in


def instantiated(function: Function) -> Any:
    """
    The FunctionGraphs of a function: before Grappler, after it and auto-clustering, and in partitions.

    Clears the kernel cache, before and afterwards.

    Raises:
        Cannot: If it cannot be instantiated without running it.
    """
    definition = definition_of(function.name)
    if len(function.args) != len(definition.signature.input_arg):
        raise Cannot(f"{function.title} takes other arguments than it was called with")
    if not _cancelled_calls_do_not_run():
        raise Cannot("this version of TensorFlow does not instantiate a function without running it")
    args = [_stand_in(function, arg) for arg in function.args]
    for _ in range(_TRIES):
        entries = _instantiate(function.name, args, len(definition.signature.output_arg))
        for entry in entries:
            if shows(entry, definition):
                return entry
    raise Cannot(f"the graphs of {function.title} were not seen apart from those of other threads")


def unclustered(function: Function) -> Any:
    """
    The same with no clusters at all: what the user wants compiled (jit_compile) is a call there that stays one, as it is without
    auto-clustering.

    Raises:
        Cannot: If it cannot be instantiated without running it.
    """
    from tensorflow.python.eager import context

    copies: dict[str, str] = {}
    try:
        name = _copied(function.name, copies)
        with _no_clusters():
            graphs = instantiated(replace(function, name=name))
    finally:
        for copy in copies.values():
            context.context().remove_function(copy)
    for node in graphs.post_optimization_graph.node:
        for value in node.attr.values():
            if value.HasField("func"):
                value.func.name = value.func.name.removesuffix(_COPY)
        made_from = [name.removesuffix(_COPY) for name in node.experimental_debug_info.original_func_names]
        node.experimental_debug_info.original_func_names[:] = made_from
    return graphs


def shows(entry: Any, definition: Any) -> bool:
    """Whether FunctionGraphs are those of a function and of nothing besides."""
    nodes, signature = entry.pre_optimization_graph.node, definition.signature
    if len(nodes) != len(signature.input_arg) + len(definition.node_def) + len(signature.output_arg):
        return False
    return names_of(definition.node_def) <= names_of(nodes)


def names_of(nodes: Any) -> set[tuple[str, str]]:
    """Names and types of nodes."""
    return {(node.name, node.op) for node in nodes}


def _instantiate(name: str, args: list[Any], n_results: int) -> list[Any]:
    """What the runtime shows of one function; an op that is run when it ends makes it show what there is."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    runtime = context.context()
    runtime.clear_kernel_cache()
    context.enable_run_metadata()
    try:
        tf.raw_ops.NoOp()
        context.export_run_metadata()
        _call_cancelled(name, args, n_results)
        tf.raw_ops.NoOp()
        return list(context.export_run_metadata().function_graphs)
    finally:
        context.disable_run_metadata()
        runtime.clear_kernel_cache()


def _call_cancelled(name: str, args: list[Any], n_results: int) -> bool:
    """Whether a call was not started, as it was cancelled before."""
    import tensorflow as tf
    from tensorflow.python.eager import cancellation, context

    manager = cancellation.CancellationManager()
    manager.start_cancel()
    try:
        with cancellation.CancellationManagerContext(manager):
            context.context().call_function(name.encode(), args, n_results)
    except tf.errors.CancelledError:
        return True
    return False


@cache
def _cancelled_calls_do_not_run() -> bool:
    """Tried with a function that does no harm."""
    import tensorflow as tf

    harmless = tf.function(tf.negative, autograph=False).get_concrete_function(tf.TensorSpec([], tf.float32))
    try:
        return _call_cancelled(harmless.name.decode(), [tf.constant(0.0)], 1)
    except (AttributeError, TypeError):
        return False


def _stand_in(function: Function, arg: Any) -> Any:
    """What a function may be given that is not run: a resource itself, of other arguments only their type matters."""
    import tensorflow as tf

    if is_resource(arg):
        return arg
    if arg.dtype == tf.variant:
        raise Cannot(f"{function.title} is given a variant, so it cannot be instantiated without running it")
    return tf.zeros([], arg.dtype)


def _copied(name: str, copies: dict[str, str]) -> str:
    """A copy of a function, and of those that it calls, in which nobody asks for XLA, and what must be compiled is not inlined."""
    from tensorflow.python.eager import context

    if name in copies:
        return copies[name]
    definition = type(definition_of(name))()
    definition.CopyFrom(definition_of(name))
    copies[name] = definition.signature.name = name + _COPY
    if must_compile(definition):
        definition.attr.pop("_XlaMustCompile")
        definition.attr["_noinline"].b = True
    for node in definition.node_def:
        kept = must_compile(node)
        for request in _REQUESTS:
            node.attr.pop(request, None)
        if called_by(node) and "Dataset" not in node.op:
            _copy_called(node, copies, kept)
    context.context().add_function_def(definition)
    return copies[name]


def _copy_called(node: Any, copies: dict[str, str], kept: bool) -> None:
    """Let a node call copies."""
    for value in node.attr.values():
        for func in [value.func] if value.HasField("func") else value.list.func:
            func.name = _copied(func.name, copies)
    if kept:
        node.attr["_noinline"].b = True


@contextmanager
def _no_clusters() -> Iterator[None]:
    """Within the context auto-clustering finds every cluster too small."""
    from tensorflow.python import pywrap_tfe

    given = _MIN_CLUSTER.search(os.environ.get("TF_XLA_FLAGS", ""))
    pywrap_tfe.TF_SetXlaMinClusterSize(_NO_CLUSTER)
    try:
        yield
    finally:
        pywrap_tfe.TF_SetXlaMinClusterSize(int(given[1]) if given else _MIN_CLUSTER_DEFAULT)
