"""How many examples an element of a dataset holds, where its signature leaves that open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pytest_tfperf.compiler.functions import definition_of, graph_of
from pytest_tfperf.op_types import KEEPS_BATCHES
from pytest_tfperf.tf_runtime import load_tensorflow

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
        return (
            None
            if size is None
            else [tf.TensorShape([int(size)]).concatenate(leaf.shape[1:]) for leaf in leaves]
        )
    stage = type(data).__name__.strip("_").removesuffix("Dataset").removesuffix("V2")
    shapes = _shapes(data._input_dataset) if stage in KEEPS_BATCHES | _MAPS else None
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


_PADS = "PaddedBatchDataset"


@dataclass(frozen=True, slots=True)
class PaddedComponent:
    """
    A component that a `padded_batch` pads: its dtype, the value (None where it is not a constant), and the axes of the batch.

    The axes are those that are padded to the longest of a batch, or to more than the examples have.
    """

    dtype: str
    value: Any
    axes: tuple[int, ...]


def padded_batches(data: Any) -> list[tuple[PaddedComponent, ...]]:
    """
    What each `padded_batch` of a tf.data.Dataset pads, the last one of the pipeline first; empty for other data.

    `bucket_by_sequence_length` hides its own in the function of a `group_by_window`. Stages and functions are read as Python
    holds them: a serialised pipeline (DatasetToGraphV2) would carry all data of `from_tensor_slices` with it.
    """
    try:
        return list(_found(data))
    except Exception:  # private parts of TensorFlow, which must not end the user's test
        return []


def _found(data: Any) -> Iterator[tuple[PaddedComponent, ...]]:
    # private: the inputs and functions of a dataset (2.16 to 2.21)
    import tensorflow as tf

    waiting = [getattr(data, "_original_dataset", data)]  # of one that is distributed
    while waiting:
        stage = waiting.pop(0)
        if not isinstance(stage, tf.data.Dataset):
            continue
        if hasattr(stage, "_padded_shapes") and hasattr(stage, "_padding_values"):
            given = [spec.shape for spec in tf.nest.flatten(stage._input_dataset.element_spec)]
            yield _components(
                tf.nest.flatten(stage._padded_shapes), tf.nest.flatten(stage._padding_values), given
            )
        for function in stage._functions():
            for op in function.function.graph.get_operations():
                if op.type.startswith(_PADS):
                    yield _of_op(op)
        waiting += stage._inputs()


def _of_op(op: Any) -> tuple[PaddedComponent, ...]:
    """The inputs are the dataset, the batch size, n shapes, n values and drop_remainder (tensorflow/core/ops/dataset_ops.cc)."""
    n = op.get_attr("N")
    import tensorflow as tf

    shapes = op.inputs[2 : 2 + n]
    whole = [tf.get_static_value(shape) for shape in shapes]
    known = not all(
        sizes is not None and (sizes >= 0).all() for sizes in whole
    )  # where all sizes are given, any may be padded
    given = [
        None
        if sizes is None or not known
        else tf.TensorShape([None if size < 0 else size for size in sizes])
        for sizes in whole
    ]
    return _components(shapes, op.inputs[2 + n : 2 + 2 * n], given)


def _components(shapes: Any, values: Any, given: Any) -> tuple[PaddedComponent, ...]:
    """Of the padded shapes, the values, and the shapes of the examples, None where these are not known."""
    import tensorflow as tf

    return tuple(
        PaddedComponent(
            value.dtype.name,
            _constant(tf.get_static_value(value)),
            _axes(tf.get_static_value(shape), examples),
        )
        for shape, value, examples in zip(shapes, values, given, strict=True)
    )


def _constant(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _axes(sizes: Any, examples: Any) -> tuple[int, ...]:
    if sizes is None:
        return (1,)
    before = (
        [None] * len(sizes)
        if examples is None or examples.rank != len(sizes)
        else examples.as_list()
    )
    return tuple(
        axis
        for axis, (size, had) in enumerate(zip(sizes, before, strict=True), 1)
        if had is None or size > had
    )
