"""
Instantiate functions in TensorFlow's runtime without running them, to get their optimised graphs.

The runtime instantiates a function called with a cancelled CancellationManager, with all passes,
and then does not start it (FunctionLibraryRuntimeImpl::Run in
tensorflow/core/common_runtime/function.cc). So nothing is computed, and no variable changes.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from time import perf_counter
from typing import Any

from pytest_tfperf.compiler.functions import (
    Function,
    Unsupported,
    called_by,
    copied,
    definition_of,
    is_resource,
    must_compile,
    redirect,
)
from pytest_tfperf.compiler.step_calls import Probe, SessionRun
from pytest_tfperf.op_types import TRANSFERS, XLA_SHELLS, is_op, is_pipeline

_COPY, _UNCLUSTERED = "_seen_by_tfperf", "_without_clusters"  # suffixes of the names of copies
_SPECIALIZED = "_specialized_for_"  # function_optimizer.cc: its copy for the constants of one call
_REQUESTS = ("_XlaCompile", "_XlaScope", "_XlaMustCompile", "_XlaSeparateCompiledGradients")
_MIN_CLUSTER = re.compile(r"--tf_xla_min_cluster_size=(\d+)")
_MIN_CLUSTER_DEFAULT = 4  # tensorflow/compiler/jit/flags.cc
_NO_CLUSTER = 2**31 - 1
_TRIES = 3  # graphs of other threads may be mixed in
# The kernel of an op is chosen after Grappler (mkl_layout_pass.cc).
_ONEDNN = re.compile(r"^_Mkl(Native)?(Fused)?")
# Pivots and inputs of branches, control nodes of loops: Graph::NewName.
_MADE_BY_LOWERING = re.compile(r"/_\d+$")
_MADE_BY_CLUSTERING = re.compile(r"/clone_\d+$")  # clone_constants_for_better_clustering.cc
_DEEPEST = 50  # nested calls; TensorFlow runs no endless recursion


def instantiated(function: Function) -> Any:
    """
    Return the FunctionGraphs of a function: before Grappler, after auto-clustering, in partitions.

    A copy is instantiated, so that the cached state of the function itself does not change.
    Raises Unsupported if that needs to run it.
    """
    definition = copied(definition_of(function.name), _COPY)
    return _graphs_of(function, [definition])


def unclustered(function: Function) -> Any:
    """
    Return the FunctionGraphs of a function with nothing clustered; Unsupported as `instantiated`.

    Calls of functions with jit_compile=True stay calls, as without auto-clustering.
    """
    copies: dict[str, Any] = {}
    _copy_without_requests(function.name, copies)
    with _no_clusters():
        return _graphs_of(function, list(copies.values()))


def _graphs_of(function: Function, copies: list[Any]) -> Any:
    """Return the FunctionGraphs of the first FunctionDef, called with the function's arguments."""
    from tensorflow.python.eager import context

    definition = copies[0]
    if len(function.args) != len(definition.signature.input_arg):
        raise Unsupported(f"{function.title} takes other arguments than it was called with")
    if context.context().is_async():
        raise Unsupported(
            "ops run asynchronously (tf.config.experimental.set_synchronous_execution(False)), and "
            "instantiating a function would cancel them"
        )
    if not _cancelled_calls_do_not_run():
        raise Unsupported(
            "this version of TensorFlow does not instantiate a function without running it"
        )
    if _user_collects_graphs():
        raise Unsupported(
            "the test collects graphs itself (tf.summary.trace_on(graph=True)), which would end it"
        )
    args = list(map(_fake_argument, function.args))
    name, n_results = definition.signature.name, len(definition.signature.output_arg)
    for copy in copies:
        context.context().add_function_def(copy)
    try:
        for _ in range(_TRIES):
            for entry in _instantiate(name, args, n_results):
                if shows(entry, definition):
                    _name_origins(entry.post_optimization_graph)
                    return entry
    finally:
        for copy in copies:
            context.context().remove_function(copy.signature.name)
    raise Unsupported(
        f"the graphs of {function.title} could not be told from those of other threads"
    )


def shows(entry: Any, definition: Any) -> bool:
    """Return whether FunctionGraphs are those of a function and of nothing else."""
    nodes, signature = entry.pre_optimization_graph.node, definition.signature
    n_arguments = len(signature.input_arg) + len(signature.output_arg)
    if len(nodes) != n_arguments + len(definition.node_def):
        return False
    return names_of(definition.node_def) <= names_of(nodes)


def _name_origins(graph: Any) -> None:
    """Let nodes name functions as they were traced, not our copies of them or Grappler's."""
    for node in graph.node:
        for called in called_by(node):
            redirect(node, called, _origin(called))
        origin = node.experimental_debug_info
        origin.original_func_names[:] = map(_origin, origin.original_func_names)


def _origin(name: str) -> str:
    """Return the function that the runtime knows of which a function is a copy."""
    from tensorflow.python.eager import context

    if context.context().has_function(name) and not name.endswith(_UNCLUSTERED):
        return name
    return name.partition(_SPECIALIZED)[0].removesuffix(_UNCLUSTERED)


def names_of(nodes: Any) -> set[tuple[str, str]]:
    """Return names and types of nodes."""
    return {(node.name, node.op) for node in nodes}


def _instantiate(name: str, args: list[Any], n_results: int) -> list[Any]:
    """Return the graphs that the runtime shows for one function; a NoOp flushes its records."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    # disable_run_metadata() would leave the collection of graphs on: each later call then keeps its
    # graphs for ever (TensorFlow 2.21).
    context.enable_graph_collection()
    try:
        tf.raw_ops.NoOp()
        context.export_run_metadata()
        _call_cancelled(name, args, n_results)
        tf.raw_ops.NoOp()
        return list(context.export_run_metadata().function_graphs)
    finally:
        context.disable_graph_collection()


def _user_collects_graphs() -> bool:
    """Return whether `tf.summary.trace_on(graph=True)` is on, which ours would empty and end."""
    # private: TensorFlow has no way to ask
    from tensorflow.python.ops import summary_ops_v2

    return bool(getattr(getattr(summary_ops_v2, "_current_trace_context", None), "graph", False))


def _call_cancelled(name: str, args: list[Any], n_results: int) -> bool:
    """
    Call a function that is already cancelled; return whether the runtime refused to start it.

    A `CancellationManagerContext` would cancel the calls of other threads too.
    """
    import tensorflow as tf
    from tensorflow.python.eager import cancellation, context, execute

    manager = cancellation.CancellationManager()
    manager.start_cancel()
    own = context.context()
    try:
        execute.execute_with_cancellation(
            name,
            num_outputs=n_results,
            inputs=args,
            attrs=tuple(chain(*own.function_call_options.as_attrs().items())),
            ctx=own,
            cancellation_manager=manager,
        )
    except tf.errors.CancelledError:
        return True
    return False


@cache
def _cancelled_calls_do_not_run() -> bool:
    """Try it with a function that has no effects."""
    import tensorflow as tf

    harmless = tf.function(tf.negative, autograph=False).get_concrete_function(
        tf.TensorSpec([], tf.float32)
    )
    try:
        return _call_cancelled(harmless.name.decode(), [tf.constant(0.0)], 1)
    except (AttributeError, TypeError):
        return False


def _fake_argument(arg: Any) -> Any:
    """Return an argument for a call that does not run: only the type matters, except resources."""
    import tensorflow as tf

    if is_resource(arg):
        return arg
    if arg.dtype == tf.variant:
        return tf.raw_ops.EmptyTensorList(
            element_shape=-1, max_num_elements=0, element_dtype=tf.float32
        )
    return tf.zeros([], arg.dtype)


def _copy_without_requests(name: str, copies: dict[str, Any]) -> None:
    """Copy a function and its callees without requests for XLA; do not inline jit_compile=True."""
    if name in copies:
        return
    definition = copies[name] = copied(definition_of(name), _UNCLUSTERED)
    if must_compile(definition):
        definition.attr.pop("_XlaMustCompile")
        definition.attr["_noinline"].b = True
    for node in definition.node_def:
        for request in _REQUESTS:
            node.attr.pop(request, None)
        for called in called_by(node) if not is_pipeline(node.op) else ():
            _copy_without_requests(called, copies)
            redirect(node, called, called + _UNCLUSTERED)


@contextmanager
def _no_clusters() -> Iterator[None]:
    """Let auto-clustering find every cluster too small within the context."""
    from tensorflow.python import pywrap_tfe

    flag = _MIN_CLUSTER.search(os.environ.get("TF_XLA_FLAGS", ""))
    pywrap_tfe.TF_SetXlaMinClusterSize(_NO_CLUSTER)
    try:
        yield
    finally:
        pywrap_tfe.TF_SetXlaMinClusterSize(int(flag[1]) if flag else _MIN_CLUSTER_DEFAULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A function that Python called in a step, or the ops of a Session's run."""

    runs: int
    """Number of runs in the step."""
    before: Sequence[Any]
    """Nodes that Grappler received."""
    after: Sequence[Any]
    """Nodes after Grappler, with nothing clustered; equal to `before` for jit_compile=True."""
    graph: Any
    """Python graph, which holds the user's lines."""
    function: Function | None = None
    """The function, None for a Session's run; under a tape the form with more results."""
    unclustered: Any = None
    """GraphDef of `after`."""
    clustered: Any = None
    """GraphDef after auto-clustering, if that found clusters."""

    @property
    def compiled(self) -> bool:
        """True for a function that XLA compiles as a whole."""
        return self.function is not None and self.unclustered is None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceNode:
    """A node that counts as an op."""

    name: str
    """Its name after the names of its callers, separated by slashes."""
    node: Any
    """NodeDef."""
    top: str
    """Name of the node in the graph itself that it is, or belongs to."""
    owner: str | None = None
    """Name of the function whose body holds it."""
    compiled: bool = False
    """True within a function with jit_compile=True."""


def instances(probe: Probe, max_seconds: float = math.inf) -> list[Instance]:
    """
    Return the functions called in the probe's step, by their first calls, and the Session runs.

    Raises Unsupported if one has no graphs to read, or all take longer than `max_seconds`.
    """
    n_runs: Counter[str] = Counter()
    for (name, _), count in probe.eager.items():
        n_runs[name] += count
    runs: dict[str, tuple[Function, int]] = {}
    for function, count in _called(probe):
        variants = [
            (variant, n_runs[variant.name])
            for variant in _variants(function)
            if n_runs[variant.name]
        ]
        # Calls in another thread are not among the single ops.
        runs |= {variant.name: (variant, n) for variant, n in variants or [(function, count)]}
    deadline = perf_counter() + max_seconds
    found = []
    for function, n in runs.values():
        if perf_counter() > deadline:
            raise Unsupported(
                "reading the graphs of its functions takes longer than "
                f"{max_seconds:g} s (tfperf_max_seconds)"
            )
        found.append(_instance(function, n))
    return found + [_session_instance(run) for run in probe.sessions]


def ops_in(nodes: Iterable[Any]) -> Iterator[InstanceNode]:
    """
    Yield the ops of a graph and of its callees, once for each call.

    Bodies of loops and branches count once, also of loops over a dataset. Arguments, results,
    calls, control flow itself and the functions of an input pipeline do not count. A callee has
    the ops from before Grappler: it inlines most functions, and its changes to the others are not
    visible.
    """
    for node in nodes:
        yield from _ops_of(node, InstanceNode(name=node.name, node=node, top=node.name), _DEEPEST)


def has_clusters(nodes: Iterable[Any]) -> bool:
    """Return whether nodes of auto-clusters are among these."""
    return any(node.op in XLA_SHELLS for node in nodes)


def counts(node: Any) -> bool:
    """Return whether a node is an op of the user's code, or of Grappler."""
    if not is_op(node.op) or node.op in XLA_SHELLS | TRANSFERS or node.op.startswith("__"):
        return False
    made_by = {
        "Identity": _MADE_BY_LOWERING,
        "IdentityN": _MADE_BY_LOWERING,
        "Const": _MADE_BY_CLUSTERING,
    }.get(node.op)
    return made_by is None or not made_by.search(node.name)


def _ops_of(node: Any, op: InstanceNode, depth: int) -> Iterator[InstanceNode]:
    if counts(node):
        yield op
    if is_pipeline(node.op) or not depth:
        return
    for name in called_by(node):
        definition = definition_of(name)
        compiled = op.compiled or must_compile(node) or must_compile(definition)
        for inner in definition.node_def:
            inside = replace(
                op, name=f"{op.name}/{inner.name}", node=inner, owner=name, compiled=compiled
            )
            yield from _ops_of(inner, inside, depth - 1)


def _called(probe: Probe) -> Iterator[tuple[Function, int]]:
    """Yield the functions called in the probe's step, and how often each was called."""
    counts = Counter(
        {
            key: count * times
            for (_, called), times in probe.calls.steps.items()
            for key, count in called
        }
    )
    yield from (
        (function, counts[key]) for key, function in probe.calls.functions.items() if counts[key]
    )


def _instance(function: Function, runs: int) -> Instance:
    definition, graph = definition_of(function.name), getattr(function.keep, "graph", None)
    before = definition.node_def
    if must_compile(definition):
        return Instance(runs=runs, before=before, after=before, graph=graph, function=function)
    optimized = instantiated(function).post_optimization_graph
    clustered = optimized if has_clusters(optimized.node) else None
    after = optimized if clustered is None else unclustered(function).post_optimization_graph
    return Instance(
        runs=runs,
        before=before,
        after=after.node,
        graph=graph,
        function=function,
        unclustered=after,
        clustered=clustered,
    )


def _session_instance(run: SessionRun) -> Instance:
    after = [node for partition in run.partitions for node in partition.node]
    for node in after:
        node.op = _ONEDNN.sub(lambda match: "_Fused" if match[2] else "", node.op)
    if has_clusters(after):
        raise Unsupported(
            "the step runs a tf.compat.v1.Session with auto-clusters, and a Session does not show "
            "their contents"
        )
    return Instance(runs=1, before=[op.node_def for op in run.ops], after=after, graph=run.graph)


def _variants(function: Function) -> list[Function]:
    """Return a function and its forms that also return what a tape needs."""
    # private: functions to be run under a tape
    forms_of = [
        getattr(function.keep, name, {})
        for name in ("_first_order_tape_functions", "_higher_order_tape_functions")
    ]
    forward = [getattr(form, "_forward", None) for forms in forms_of for form in forms.values()]
    return [
        function,
        *(replace(function, name=form.name.decode()) for form in forward if form is not None),
    ]
