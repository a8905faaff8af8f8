"""
What each of Grappler's optimisers contributed to a step: its functions are optimised again, offline, with one of them left out.

As the runtime does it, functions are inlined first. `tf_optimizer.OptimizeGraph` takes a MetaGraphDef whose `train_op` names what
is fetched (tensorflow/python/grappler/tf_optimizer.py). What would end the process is never asked of it: no optimiser is taken
from a user's ConfigProto by name, none that parallelises or plans memory runs, and no device is opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from pytest_tfperf.compiler.compilable_parts import Function
from pytest_tfperf.compiler.functions import (
    called_by,
    definition_of,
    must_compile,
    reached_from,
    without_traced_shapes,
)
from pytest_tfperf.compiler.instances import counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How large the definitions of a step's functions may be, in nodes and bytes, and how many seconds it may take."""

    nodes: int
    size: int
    seconds: float


UNASKED = Effort(nodes=150, size=4_000_000, seconds=1.0)
"""Mostly under half a second: 0.3 ms a node for each optimiser, measured with Keras models, and 13 ms a megabyte of constants."""
ASKED = Effort(nodes=20_000, size=400_000_000, seconds=20.0)
LARGEST_ARGUMENTS = 50_000_000
"""Elements of a function's arguments: Grappler makes tensors as large."""
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
"""Optimisers that run if nobody says anything, by option (tensorflow/core/grappler/optimizers/meta_optimizer.cc)."""
DEFAULT_OFF = (
    "debug_stripper",
    "pin_to_host_optimization",
    "auto_mixed_precision",
    "auto_mixed_precision_onednn_bfloat16",
    "auto_mixed_precision_mkl",
)
"""Optimisers that run if they are turned on."""
_OTHERS = (
    "implementation_selector",
    "use_plugin_optimizers",
    "disable_meta_optimizer",
    "min_graph_nodes",
)
_INVERTED = "disable_model_pruning"


def optimizers_left_out(
    functions: Sequence[tuple[Function, int]], asked: bool = False
) -> dict[str, int]:
    """
    How many ops remain of functions, each with how often a step calls it: under "" with the options of this process, under the
    option of each optimiser that runs without that one.

    Empty if it would take long, which may be longer where it was `asked` for, or if TensorFlow cannot do it.
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
    except Exception:  # an explanation is not worth a test that fails
        return {}


def _is_large(functions: Sequence[tuple[Function, int]], effort: Effort) -> bool:
    definitions = [
        definition for function, _ in functions for definition in reached_from([function.name])
    ]
    n_nodes, size = (
        sum(len(one.node_def) for one in definitions),
        sum(one.ByteSize() for one in definitions),
    )
    return (
        n_nodes > effort.nodes
        or size > effort.size
        or sum(function.n_elements for function, _ in functions) > LARGEST_ARGUMENTS
    )


def rewriter_config() -> Any:
    """The RewriterConfig that `set_experimental_options` gave this process, less what cannot be run offline safely."""
    from tensorflow.core.protobuf import rewriter_config_pb2
    from tensorflow.python.eager import context

    ours, theirs = (
        rewriter_config_pb2.RewriterConfig(),
        context.context().config.graph_options.rewrite_options,
    )
    for name in (*DEFAULT_ON, *DEFAULT_OFF, *_OTHERS):
        setattr(ours, name, getattr(theirs, name))
    ours.memory_optimization = ours.NO_MEM_OPT
    return ours


def running(config: Any) -> list[str]:
    """The options of those optimisers that run under a RewriterConfig."""
    if config.disable_meta_optimizer:
        return []
    return [name for name in DEFAULT_ON if _is_on(config, name, True)] + [
        name for name in DEFAULT_OFF if _is_on(config, name, False)
    ]


def _is_on(config: Any, name: str, by_default: bool) -> bool:
    value = getattr(config, name)
    return (
        not value
        if name == _INVERTED
        else value == config.ON or (value == config.DEFAULT and by_default)
    )


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
    How many ops a GraphDef has, with those of the functions of its library that it calls: each as often as it is called in the
    graph, bodies of loops and branches once, and what only tf.data calls not at all.
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
            size(name) for node in nodes if "Dataset" not in node.op for name in called_by(node)
        )

    return of(graph.node)


def _inlined(function: Function) -> Any:
    """A MetaGraphDef of a function in which the runtime's first passes are done: calls inlined, control flow lowered."""
    from tensorflow.core.protobuf import rewriter_config_pb2

    meta_graph = _meta_graph(function)
    only = rewriter_config_pb2.RewriterConfig(optimizers=["function"], min_graph_nodes=-1)
    meta_graph.graph_def.CopyFrom(_optimized(meta_graph, only))
    return meta_graph


def _meta_graph(function: Function) -> Any:
    """A function as a graph that is placed, in which its results and side effects are fetched."""
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
    place = _devices()[0].name
    for node in [
        *graph.node,
        *(node for called in graph.library.function for node in called.node_def),
    ]:
        node.device = node.device or place
    meta_graph = meta_graph_pb2.MetaGraphDef(graph_def=graph)
    meta_graph.collection_def["train_op"].node_list.value.extend(
        [*fetched, *dict.fromkeys(definition.control_ret.values())]
    )
    return meta_graph


def _optimized(meta_graph: Any, config: Any) -> Any:
    """The GraphDef as Grappler leaves it."""
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
    """The devices that ops are placed on, the one that is preferred first, as descriptions: none is opened."""
    import tensorflow as tf
    from tensorflow.core.protobuf import device_properties_pb2

    prefix = "/job:localhost/replica:0/task:0/device:"
    cpu = device_properties_pb2.NamedDevice(name=f"{prefix}CPU:0")
    cpu.properties.type = "CPU"
    found = [cpu]
    for gpu in tf.config.list_physical_devices("GPU")[:1]:
        capability = tf.config.experimental.get_device_details(gpu).get(
            "compute_capability", (0, 0)
        )
        named = device_properties_pb2.NamedDevice(name=f"{prefix}GPU:0")
        named.properties.type = "GPU"
        named.properties.environment["architecture"] = ".".join(
            map(str, capability)
        )  # its optimisers end the process without
        found.insert(0, named)
    return found
