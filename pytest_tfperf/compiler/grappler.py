"""
Grappler's options, restored exactly, and the ablation of its passes: one is left out at a time.

Functions are inlined first, as the runtime does. `tf_optimizer.OptimizeGraph` takes a MetaGraphDef
whose `train_op` names the fetches (tensorflow/python/grappler/tf_optimizer.py). Nothing that would
end the process is requested: no pass is taken by name from a user's ConfigProto, no pass that
parallelises or plans memory runs, and no device is opened.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from pytest_tfperf.compiler.functions import (
    Function,
    called_by,
    definition_of,
    must_compile,
    reached_from,
    without_traced_shapes,
)
from pytest_tfperf.compiler.runtime_graphs import counts
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.metric_registry import nearest
from pytest_tfperf.op_types import is_pipeline

__tracebackhide__ = True
TOGGLES = (
    "layout_optimizer",
    "constant_folding",
    "shape_optimization",
    "remapping",
    "arithmetic_optimization",
    "dependency_optimization",
    "loop_optimization",
    "function_optimization",
    "debug_stripper",
    "disable_model_pruning",
    "scoped_allocator_optimization",
    "pin_to_host_optimization",
    "implementation_selector",
    "auto_mixed_precision",
    "auto_mixed_precision_onednn_bfloat16",
    "auto_mixed_precision_mkl",
    "use_plugin_optimizers",
    "disable_meta_optimizer",
)
"""
Boolean options of `tf.config.optimizer.set_experimental_options`.

Source: tensorflow/python/eager/context.py.
"""
NUMBERS = ("min_graph_nodes",)
_INT32 = 2**31  # rewriter_config.proto
LARGEST_ARGUMENTS = 50_000_000
"""Most elements of the functions' arguments: Grappler creates tensors as large."""
DEFAULT_ON = (
    "layout_optimizer",
    "constant_folding",
    "shape_optimization",
    "remapping",
    "arithmetic_optimization",
    "dependency_optimization",
    "loop_optimization",
    "function_optimization",
    "disable_model_pruning",
)
"""Passes that run by default, by option (tensorflow/core/grappler/optimizers/meta_optimizer.cc)."""
DEFAULT_OFF = (
    "debug_stripper",
    "pin_to_host_optimization",
    "auto_mixed_precision",
    "auto_mixed_precision_onednn_bfloat16",
    "auto_mixed_precision_mkl",
)
"""Passes that run if they are turned on."""
_OTHERS = (
    "implementation_selector",
    "use_plugin_optimizers",
    "disable_meta_optimizer",
    "min_graph_nodes",
)
_INVERTED = "disable_model_pruning"


def grappler_options(**options: Any) -> AbstractContextManager[None]:
    """
    Let Grappler run with additional options within the context, also on functions traced before.

    TensorFlow merges options into those of the process and cannot unset one. This context restores
    all of them. A thread keeps the options of its first call of a function, so the context
    works in the thread that enters it.

    Raises:
        CaptureError: If an option is unknown or its value has the wrong type. TensorFlow itself
            ignores an unknown option, and fails later on a wrong type.
    """
    _check(options)
    return _set_options(_context(), options)


@contextmanager
def _set_options(context: Any, options: dict[str, Any]) -> Iterator[None]:
    before = dict(context._optimizer_experimental_options)
    context.set_optimizer_experimental_options(options)
    try:
        yield
    finally:
        _replace(context, before)


def options_in_force() -> dict[str, Any] | None:
    """Return Grappler's options of this process, or None if TensorFlow does not show them."""
    context = sys.modules.get("tensorflow.python.eager.context")
    runtime = context.context() if context else None
    options = getattr(runtime, "_optimizer_experimental_options", None)
    return dict(options) if isinstance(options, dict) else None


@contextmanager
def exactly(options: dict[str, Any] | None) -> Iterator[None]:
    """Let Grappler run with these options alone within the context; None changes nothing."""
    before = options_in_force()
    if options is None or before is None or options == before:
        yield
        return
    runtime = _context()
    _replace(runtime, options)
    try:
        yield
    finally:
        _replace(runtime, before)


def _replace(context: Any, options: dict[str, Any]) -> None:
    context._optimizer_experimental_options.clear()
    context.set_optimizer_experimental_options(options)


def _check(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if name not in TOGGLES + NUMBERS:
            raise CaptureError(
                f"Grappler has no option {name!r}; {nearest(name, TOGGLES + NUMBERS)}"
            )
        if name in TOGGLES and not isinstance(value, bool):
            raise CaptureError(f"Grappler's {name} is True or False, not {value!r}")
        if name in NUMBERS and (isinstance(value, bool) or not isinstance(value, int)):
            raise CaptureError(f"Grappler's {name} is a whole number, not {value!r}")
        if name in NUMBERS and not -_INT32 <= value < _INT32:
            raise CaptureError(f"Grappler's {name} is a 32-bit number, and {value} is not")


def _context() -> Any:
    # private: the only way to unset an option
    from tensorflow.python.eager import context

    runtime = context.context()
    if not isinstance(getattr(runtime, "_optimizer_experimental_options", None), dict):
        import tensorflow

        raise CaptureError(
            f"TensorFlow {tensorflow.__version__} does not show its Grappler options, so they "
            "could not be restored"
        )
    return runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Bounds of an ablation."""

    nodes: int
    """Largest number of nodes in the definitions of a step's functions."""
    size: int
    """Largest size of the definitions, in bytes."""
    seconds: float
    """Time limit."""


UNASKED = Effort(nodes=150, size=4_000_000, seconds=1.0)
"""
Bounds that keep an ablation mostly under half a second.

Measured: 0.3 ms a node for each pass with Keras models, and 13 ms a megabyte of constants.
"""


ASKED = Effort(nodes=20_000, size=400_000_000, seconds=20.0)


def ops_without_each_pass(
    functions: Sequence[tuple[Function, int]], asked: bool = False
) -> dict[str, int]:
    """
    Count the ops that remain of functions, "" with all Grappler passes, and without each by option.

    Empty if it would take too long, or if TensorFlow fails.
    """
    called = [
        (function, runs)
        for function, runs in functions
        if not must_compile(definition_of(function.name))
    ]
    effort = ASKED if asked else UNASKED
    if not called or _is_large(called, effort):
        return {}
    try:
        return _left_out(called, perf_counter() + effort.seconds)
    except Exception:  # a missing explanation must not fail the test
        return {}


def _is_large(functions: Sequence[tuple[Function, int]], effort: Effort) -> bool:
    definitions = [
        definition for function, _ in functions for definition in reached_from([function.name])
    ]
    return (
        sum(len(definition.node_def) for definition in definitions) > effort.nodes
        or sum(definition.ByteSize() for definition in definitions) > effort.size
        or sum(function.n_elements for function, _ in functions) > LARGEST_ARGUMENTS
    )


def rewriter_config() -> Any:
    """Return this process's RewriterConfig, without passes that cannot safely run offline."""
    from tensorflow.core.protobuf import rewriter_config_pb2
    from tensorflow.python.eager import context

    config = rewriter_config_pb2.RewriterConfig()
    of_process = context.context().config.graph_options.rewrite_options
    for name in (*DEFAULT_ON, *DEFAULT_OFF, *_OTHERS):
        setattr(config, name, getattr(of_process, name))
    config.memory_optimization = config.NO_MEM_OPT
    return config


def running(config: Any) -> list[str]:
    """Return the options of the passes that run under a RewriterConfig."""
    if config.disable_meta_optimizer:
        return []
    return [name for name in DEFAULT_ON if _is_on(config, name, True)] + [
        name for name in DEFAULT_OFF if _is_on(config, name, False)
    ]


def _is_on(config: Any, name: str, by_default: bool) -> bool:
    value = getattr(config, name)
    if name == _INVERTED:
        return not value
    return bool(value == config.ON or (value == config.DEFAULT and by_default))


def _without(config: Any, name: str) -> Any:
    less = type(config)()
    less.CopyFrom(config)
    setattr(less, name, True if name == _INVERTED else config.OFF)
    return less


def _left_out(functions: Sequence[tuple[Function, int]], deadline: float) -> dict[str, int]:
    config = rewriter_config()
    graphs = [(_inlined(function), runs) for function, runs in functions]
    remaining = {"": _remaining(graphs, config)}
    for name in running(config):
        if perf_counter() > deadline:
            return {}
        remaining[name] = _remaining(graphs, _without(config, name))
    return remaining


def _remaining(graphs: Iterable[tuple[Any, int]], config: Any) -> int:
    return sum(runs * n_ops(_optimized(meta_graph, config)) for meta_graph, runs in graphs)


def n_ops(graph: Any) -> int:
    """
    Count the ops of a GraphDef and of the library functions that it calls.

    A function counts once for each call, the body of a loop or branch once. Functions that only
    tf.data calls do not count.
    """
    library = {
        definition.signature.name: definition.node_def for definition in graph.library.function
    }
    sizes: dict[str, int] = {}

    def size(name: str) -> int:
        if name not in sizes:
            sizes[name] = 0  # for a function that calls itself
            sizes[name] = of(library.get(name, ()))
        return sizes[name]

    def of(nodes: Iterable[Any]) -> int:
        own = sum(map(counts, nodes))
        return own + sum(
            size(name) for node in nodes if not is_pipeline(node.op) for name in called_by(node)
        )

    return of(graph.node)


def _inlined(function: Function) -> Any:
    """Return a function's MetaGraphDef with calls inlined and control flow lowered."""
    from tensorflow.core.protobuf import rewriter_config_pb2

    meta_graph = _meta_graph(function)
    only = rewriter_config_pb2.RewriterConfig(optimizers=["function"], min_graph_nodes=-1)
    meta_graph.graph_def.CopyFrom(_optimized(meta_graph, only))
    return meta_graph


def _meta_graph(function: Function) -> Any:
    """Return a function as a placed graph that fetches its results and side effects."""
    from tensorflow.core.protobuf import meta_graph_pb2
    from tensorflow.python.framework import function_def_to_graph

    definition = definition_of(function.name)
    shapes = [getattr(arg, "shape", None) for arg in function.args]
    graph, names = function_def_to_graph.function_def_to_graph_def(
        without_traced_shapes(definition), shapes
    )
    for index, result in enumerate(definition.signature.output_arg):
        node = graph.node.add(
            name=f"{result.name}_of_tfperf",
            op="_Retval",
            input=[names[definition.ret[result.name]]],
        )
        node.attr["T"].type = result.type
        node.attr["index"].i = index
    fetched = [node.name for node in graph.node if node.op == "_Retval"]
    del graph.library.function[:]
    graph.library.function.extend(reached_from([function.name])[1:])
    inner = [node for called in graph.library.function for node in called.node_def]
    place = _devices()[0].name
    for node in [*graph.node, *inner]:
        node.device = node.device or place
    meta_graph = meta_graph_pb2.MetaGraphDef(graph_def=graph)
    meta_graph.collection_def["train_op"].node_list.value.extend(
        [*fetched, *dict.fromkeys(definition.control_ret.values())]
    )
    return meta_graph


def _optimized(meta_graph: Any, config: Any) -> Any:
    """Return the GraphDef after Grappler."""
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.grappler import cluster, tf_optimizer

    proto = config_pb2.ConfigProto()
    proto.graph_options.rewrite_options.CopyFrom(config)
    devices = cluster.Cluster(devices=_devices())
    try:
        return tf_optimizer.OptimizeGraph(proto, meta_graph, verbose=False, cluster=devices)
    finally:
        devices.Shutdown()


def _devices() -> list[Any]:
    """Return descriptions of the devices for ops, the preferred one first; open none of them."""
    import tensorflow as tf
    from tensorflow.core.protobuf import device_properties_pb2

    prefix = "/job:localhost/replica:0/task:0/device:"
    cpu = device_properties_pb2.NamedDevice(name=f"{prefix}CPU:0")
    cpu.properties.type = "CPU"
    devices = [cpu]
    for gpu in tf.config.get_visible_devices("GPU")[:1]:
        capability = tf.config.experimental.get_device_details(gpu).get(
            "compute_capability", (0, 0)
        )
        named = device_properties_pb2.NamedDevice(name=f"{prefix}GPU:0")
        named.properties.type = "GPU"
        # Grappler's passes for GPUs end the process if the architecture is missing.
        named.properties.environment["architecture"] = ".".join(map(str, capability))
        devices.insert(0, named)
    return devices
