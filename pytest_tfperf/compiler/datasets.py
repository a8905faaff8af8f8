"""How many examples an element of a dataset holds, where its signature leaves that open."""

from __future__ import annotations

from typing import Any

from pytest_tfperf.compiler.functions import definition_of, graph_of
from pytest_tfperf.tf_runtime import load_tensorflow

_KEEP_SHAPES = {"Prefetch", "Repeat", "Shuffle", "Take", "Skip", "Cache", "Options", "Shard"}
_MAPS = {"Map", "ParallelMap"}


def batch_size(data: Any) -> int | None:
    """The first size of all parts of an element: that of the last `batch`, through what later stages make of it; None if not known."""
    try:
        shapes = _shapes(data)
    except Exception:  # private parts of TensorFlow, which must not end the user's test
        return None
    if not shapes or any(shape.rank is None for shape in shapes):
        return None
    sizes = {shape[0] for shape in shapes if shape.rank}
    return sizes.pop() if len(sizes) == 1 else None


def _shapes(data: Any) -> list[Any] | None:
    """The shapes of an element's parts with full batches."""
    # private: the chain of datasets, what batching ones are told, and what mapping ones call (2.16 to 2.21)
    tf = load_tensorflow()
    leaves = tf.nest.flatten(data.element_spec)
    if hasattr(data, "_batch_size"):
        size = tf.get_static_value(data._batch_size)
        return None if size is None else [tf.TensorShape([int(size)]).concatenate(leaf.shape[1:]) for leaf in leaves]
    stage = type(data).__name__.strip("_").removesuffix("Dataset").removesuffix("V2")
    shapes = _shapes(data._input_dataset) if stage in _KEEP_SHAPES | _MAPS else None
    return _mapped(data, shapes) if shapes and stage in _MAPS else shapes


def _mapped(data: Any, shapes: list[Any]) -> list[Any] | None:
    """What the function of a mapping dataset makes of tensors of these shapes, as far as TensorFlow infers it."""
    tf = load_tensorflow()
    specs = tf.nest.flatten([data._input_dataset.element_spec, data.element_spec])
    if not all(type(spec) is tf.TensorSpec for spec in specs):
        return None
    definition = definition_of(data._map_func.function.name)
    captured = [None] * (len(definition.signature.input_arg) - len(shapes))
    return [tensor.shape for tensor in graph_of(definition, [*shapes, *captured]).outputs]
