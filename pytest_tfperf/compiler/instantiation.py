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
from functools import cache
from typing import Any

from pytest_tfperf.compiler.compilable_parts import Cannot, Function, is_resource
from pytest_tfperf.compiler.functions import called_by, definition_of, must_compile

_SEEN, _UNCLUSTERED = "_seen_by_tfperf", "_without_clusters"  # what copies are named
_REQUESTS = ("_XlaCompile", "_XlaScope", "_XlaMustCompile", "_XlaSeparateCompiledGradients")
_MIN_CLUSTER = re.compile(r"--tf_xla_min_cluster_size=(\d+)")
_MIN_CLUSTER_DEFAULT = 4  # tensorflow/compiler/jit/flags.cc
_NO_CLUSTER = 2**31 - 1
_TRIES = 3  # what other threads run at the same time may mix in


def instantiated(function: Function) -> Any:
    """
    The FunctionGraphs of a function: before Grappler, after it and auto-clustering, and in partitions.

    A copy is instantiated, so that the function itself stays as warm as it is.

    Raises:
        Cannot: If it cannot be instantiated without running it.
    """
    definition = _copy_of(function.name, _SEEN)
    return _graphs_of(function, [definition])


def unclustered(function: Function) -> Any:
    """
    The same with no clusters at all: what the user wants compiled (jit_compile) is a call there that stays one, as it is without
    auto-clustering.

    Raises:
        Cannot: If it cannot be instantiated without running it.
    """
    copies: dict[str, Any] = {}
    _copy_without_requests(function.name, copies)
    with _no_clusters():
        graphs = _graphs_of(function, list(copies.values()))
    for node in graphs.post_optimization_graph.node:
        for value in node.attr.values():
            if value.HasField("func"):
                value.func.name = value.func.name.removesuffix(_UNCLUSTERED)
        made_from = [
            name.removesuffix(_UNCLUSTERED)
            for name in node.experimental_debug_info.original_func_names
        ]
        node.experimental_debug_info.original_func_names[:] = made_from
    return graphs


def _graphs_of(function: Function, copies: list[Any]) -> Any:
    """The FunctionGraphs of the first of these FunctionDefs, which the runtime does not know yet, called like the function."""
    from tensorflow.python.eager import context

    definition = copies[0]
    if len(function.args) != len(definition.signature.input_arg):
        raise Cannot(f"{function.title} takes other arguments than it was called with")
    if not _cancelled_calls_do_not_run():
        raise Cannot(
            "this version of TensorFlow does not instantiate a function without running it"
        )
    args = list(map(_stand_in, function.args))
    for copy in copies:
        context.context().add_function_def(copy)
    try:
        for _ in range(_TRIES):
            for entry in _instantiate(
                definition.signature.name, args, len(definition.signature.output_arg)
            ):
                if shows(entry, definition):
                    return entry
    finally:
        for copy in copies:
            context.context().remove_function(copy.signature.name)
    raise Cannot(f"the graphs of {function.title} were not seen apart from those of other threads")


def shows(entry: Any, definition: Any) -> bool:
    """Whether FunctionGraphs are those of a function and of nothing besides."""
    nodes, signature = entry.pre_optimization_graph.node, definition.signature
    if len(nodes) != len(signature.input_arg) + len(definition.node_def) + len(
        signature.output_arg
    ):
        return False
    return names_of(definition.node_def) <= names_of(nodes)


def names_of(nodes: Any) -> set[tuple[str, str]]:
    """Names and types of nodes."""
    return {(node.name, node.op) for node in nodes}


def _instantiate(name: str, args: list[Any], n_results: int) -> list[Any]:
    """What the runtime shows of one function; an op that is run when it ends makes it show what there is."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    context.enable_run_metadata()
    try:
        tf.raw_ops.NoOp()
        context.export_run_metadata()
        _call_cancelled(name, args, n_results)
        tf.raw_ops.NoOp()
        return list(context.export_run_metadata().function_graphs)
    finally:
        context.disable_run_metadata()


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

    harmless = tf.function(tf.negative, autograph=False).get_concrete_function(
        tf.TensorSpec([], tf.float32)
    )
    try:
        return _call_cancelled(harmless.name.decode(), [tf.constant(0.0)], 1)
    except (AttributeError, TypeError):
        return False


def _stand_in(arg: Any) -> Any:
    """What a function may be given that is not run: a resource itself, of other arguments only their type matters."""
    import tensorflow as tf

    if is_resource(arg):
        return arg
    if arg.dtype == tf.variant:
        return tf.raw_ops.EmptyTensorList(
            element_shape=-1, max_num_elements=0, element_dtype=tf.float32
        )
    return tf.zeros([], arg.dtype)


def _copy_of(name: str, suffix: str) -> Any:
    definition = type(definition_of(name))()
    definition.CopyFrom(definition_of(name))
    definition.signature.name += suffix
    return definition


def _copy_without_requests(name: str, copies: dict[str, Any]) -> None:
    """Copy a function, and then those that it calls: nobody asks for XLA in them, and what must be compiled is not inlined."""
    if name in copies:
        return
    definition = copies[name] = _copy_of(name, _UNCLUSTERED)
    if must_compile(definition):
        definition.attr.pop("_XlaMustCompile")
        definition.attr["_noinline"].b = True
    for node in definition.node_def:
        for request in _REQUESTS:
            node.attr.pop(request, None)
        for called in called_by(node) if "Dataset" not in node.op else ():
            _copy_without_requests(called, copies)
            _call(node, called, called + _UNCLUSTERED)


def _call(node: Any, called: str, instead: str) -> None:
    """Let a node call another function."""
    for value in node.attr.values():
        for func in [value.func] if value.HasField("func") else value.list.func:
            func.name = instead if func.name == called else func.name


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
