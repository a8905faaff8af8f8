"""Datasets: their batch sizes, the padding of their batches, and their stages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pytest_tfperf.compiler.functions import Unsupported, called_by, definition_of, graph_of
from pytest_tfperf.compiler.source_lines import user_line
from pytest_tfperf.frameworks.tensorflow import load_tensorflow, loaded_tensorflow
from pytest_tfperf.graphs import reached
from pytest_tfperf.op_types import FUNCTION_CALLS, KEEPS_BATCHES, PYTHON_OPS
from pytest_tfperf.recording import ENDLESS, PipelineStage

_MAPS = {"Map", "ParallelMap"}
_PADS = "PaddedBatchDataset"
_STAGE_OP = re.compile(r"_?(?P<type>\w+?)Dataset(?:V\d+)?\Z")  # dataset_ops.cc; Python's classes
_SHUFFLES = frozenset({"Shuffle", "ShuffleAndRepeat", "Random"})
_DRAWS = re.compile(r"Random|Rng|Multinomial|TruncatedNormal|Stateful|SampleDistorted")
_WRITES = frozenset({"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"})
_LONGEST_LIST = 100  # a longer list is data, not the structure of an element
_NO_STAGES = frozenset({"Options", "Model"})
"""Datasets that only hold settings."""
_ELSEWHERE = {
    "DataService": "the stages before it run in the workers of the tf.data service",
    "Variant": "it was made by an op, and the stages before it are not visible",
}


def batch_size(data: Any) -> int | None:
    """
    Return the number of examples in an element of a dataset whose signature leaves it open.

    It is the size given to the last `batch`, followed through later stages; None if unknown.
    """
    try:
        shapes = _shapes(data)
    except Exception:  # an error in TensorFlow's private parts must not end the user's test
        return None
    if not shapes or any(shape.rank is None for shape in shapes):
        return None
    sizes = {shape[0] for shape in shapes if shape.rank}
    return sizes.pop() if len(sizes) == 1 else None


def _shapes(data: Any) -> list[Any] | None:
    """Return the shapes of an element's components in a full batch."""
    # private: the chain of datasets, arguments of batching ones, functions of mapping ones
    # (2.18 to 2.22)
    tf = load_tensorflow()
    leaves = tf.nest.flatten(data.element_spec)
    if hasattr(data, "_batch_size"):
        size = tf.get_static_value(data._batch_size)
        if size is None:
            return None
        return [tf.TensorShape([int(size)]).concatenate(leaf.shape[1:]) for leaf in leaves]
    stage = type(data).__name__.strip("_").removesuffix("Dataset").removesuffix("V2")
    shapes = _shapes(data._input_dataset) if stage in KEEPS_BATCHES | _MAPS else None
    return _mapped(data, shapes) if shapes and stage in _MAPS else shapes


def _mapped(data: Any, shapes: list[Any]) -> list[Any] | None:
    """Return the result shapes of a mapping dataset's function, where TensorFlow infers them."""
    tf = load_tensorflow()
    specs = tf.nest.flatten([data._input_dataset.element_spec, data.element_spec])
    if not all(type(spec) is tf.TensorSpec for spec in specs):
        return None
    definition = definition_of(data._map_func.function.name)
    captured = [None] * (len(definition.signature.input_arg) - len(shapes))
    return [tensor.shape for tensor in graph_of(definition, [*shapes, *captured]).outputs]


@dataclass(frozen=True, slots=True)
class PaddedComponent:
    """A component of a batch that `padded_batch` pads."""

    dtype: str
    value: Any
    """Value that it is filled with; None if that is not a constant."""
    axes: tuple[int, ...]
    """Axes of the batch padded to the longest example, or to more than the examples have."""


def named(element: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the components of an element with their paths (`0/tokens`), as tf.nest orders them."""
    items: Any
    if isinstance(element, Mapping):
        items = sorted(element.items(), key=lambda item: item[0])
    elif isinstance(element, tuple):
        items = zip(getattr(element, "_fields", range(len(element))), element, strict=True)
    elif isinstance(element, list) and len(element) <= _LONGEST_LIST:
        items = enumerate(element)
    else:
        yield path or "element", element
        return
    for key, item in items:
        yield from named(item, f"{path}/{key}" if path else str(key))


def padded_batches(data: Any) -> list[dict[str, PaddedComponent]]:
    """
    Return the components padded by each `padded_batch` of a tf.data.Dataset, the last stage first.

    They have the paths of `named`, or numbers where a function changes the batch afterwards. The
    result is empty for other data. `bucket_by_sequence_length` holds its `padded_batch` in the
    function of a `group_by_window`. Stages and functions are read as Python objects: a serialised
    pipeline (DatasetToGraphV2) would carry all data of `from_tensor_slices`.
    """
    try:
        return list(_padded_in(data))
    except Exception:  # an error in TensorFlow's private parts must not end the user's test
        return []


def _padded_in(data: Any) -> Iterator[dict[str, PaddedComponent]]:
    # private: the inputs and functions of a dataset (2.18 to 2.22)
    tf: Any = loaded_tensorflow()
    waiting = [] if tf is None else [getattr(data, "_original_dataset", data)]  # if distributed
    while waiting:
        stage = waiting.pop(0)
        if not isinstance(stage, tf.data.Dataset):
            continue
        if hasattr(stage, "_padded_shapes") and hasattr(stage, "_padding_values"):
            examples = [spec.shape for spec in tf.nest.flatten(stage._input_dataset.element_spec)]
            shapes = tf.nest.flatten(stage._padded_shapes)
            values = tf.nest.flatten(stage._padding_values)
            yield _by_path(stage.element_spec, _components(shapes, values, examples))
        for function in stage._functions():
            for op in function.function.graph.get_operations():
                if op.type.startswith(_PADS):
                    yield _by_path(stage.element_spec, _of_op(op))
        waiting += stage._inputs()


def _by_path(spec: Any, components: tuple[PaddedComponent, ...]) -> dict[str, PaddedComponent]:
    """Return the components by their paths in the elements of a stage."""
    paths = [path for path, _ in named(spec)]
    if len(paths) != len(components):
        paths = list(map(str, range(len(components))))
    return dict(zip(paths, components, strict=True))


def _of_op(op: Any) -> tuple[PaddedComponent, ...]:
    """
    Return the components that a PaddedBatchDataset op pads.

    Its inputs are the dataset, the batch size, n shapes, n values and drop_remainder
    (tensorflow/core/ops/dataset_ops.cc).
    """
    import tensorflow as tf

    n = op.get_attr("N")
    shapes = op.inputs[2 : 2 + n]
    sizes_of = [tf.get_static_value(shape) for shape in shapes]
    # Where all sizes are fixed, any axis may be padded.
    all_fixed = all(sizes is not None and (sizes >= 0).all() for sizes in sizes_of)
    examples = [
        None
        if sizes is None or all_fixed
        else tf.TensorShape([None if size < 0 else size for size in sizes])
        for sizes in sizes_of
    ]
    return _components(shapes, op.inputs[2 + n : 2 + 2 * n], examples)


def _components(shapes: Any, values: Any, examples: Any) -> tuple[PaddedComponent, ...]:
    """Return the padded components."""
    import tensorflow as tf

    return tuple(
        PaddedComponent(
            value.dtype.name,
            _constant(tf.get_static_value(value)),
            _axes(tf.get_static_value(shape), example),
        )
        for shape, value, example in zip(shapes, values, examples, strict=True)
    )


def _constant(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _axes(sizes: Any, example: Any) -> tuple[int, ...]:
    if sizes is None:
        return (1,)
    unknown = example is None or example.rank != len(sizes)
    before = [None] * len(sizes) if unknown else example.as_list()
    return tuple(
        axis
        for axis, (size, old) in enumerate(zip(sizes, before, strict=True), 1)
        if old is None or size > old
    )


def pipeline_stages(dataset: Any) -> tuple[PipelineStage, ...]:
    """
    Return the stages of a tf.data.Dataset from its sources to its end, each dataset once.

    Datasets that a function makes, as in `interleave`, stand before the stage with that function.
    Raises Unsupported if stages are not visible.
    """
    found: dict[int, None] = {}

    def stages(data: Any) -> Iterator[PipelineStage]:
        # private: the adapter of tf.compat.v1, and inputs and functions of a dataset (2.18 to 2.22)
        data = getattr(data, "_dataset", data) if "Adapter" in type(data).__name__ else data
        if id(data) in found:
            return
        found[id(data)] = None
        for source in data._inputs():
            yield from stages(source)
        graphs = [function.function.graph for function in data._functions()]
        *inner, last = (None, *_stage(_stage_type(type(data).__name__), graphs))
        yield from filter(None, inner)
        if last is not None:
            n_elements = int(data.cardinality())
            yield replace(
                last,
                elements=n_elements if n_elements >= ENDLESS else None,
                element_bytes=_bytes_of(data),
            )

    return tuple(stages(dataset))


def _stage(stage: str, graphs: list[Any]) -> Iterator[PipelineStage]:
    """Yield the datasets that a stage's functions make, and the stage itself."""
    if stage in _ELSEWHERE:
        raise Unsupported(f"the pipeline has a {stage} stage: {_ELSEWHERE[stage]}")
    ops = [op for graph in _with_callees(graphs) for op in graph.get_operations()]
    for op in ops:
        if _makes_dataset(op):
            yield from _stage(_stage_type(op.type), _graphs_called_by(op))
    python = next((op for op in ops if op.type in PYTHON_OPS), None)
    if stage in _NO_STAGES:
        return
    is_random = stage in _SHUFFLES or _draws(ops)
    if python is None:
        yield PipelineStage(stage=stage, random=is_random)
        return
    kind = "py_function" if python.type == "EagerPyFunc" else "numpy_function"
    if stage == "Generator":
        kind = "from_generator"
    yield PipelineStage(stage=stage, python=kind, line=user_line(python), random=is_random)


def _draws(ops: list[Any]) -> bool:
    """
    Return whether ops draw random numbers from a state that they change.

    Numbers of a stateless op are those of its seed. Keras takes the seed from a variable.
    """
    drawing = [op for op in ops if _DRAWS.search(op.type) and op.type not in FUNCTION_CALLS]
    writes = any(op.type in _WRITES for op in ops)
    return any(op.op_def.is_stateful or writes for op in drawing)


def _bytes_of(data: Any) -> int | None:
    """Return the bytes of an element; None unless all its shapes are known."""
    tf: Any = load_tensorflow()
    specs = tf.nest.flatten(data.element_spec)
    if not all(type(spec) is tf.TensorSpec and spec.dtype.size for spec in specs):
        return None
    sizes = [spec.shape.num_elements() for spec in specs]
    if None in sizes:
        return None
    return int(sum(size * spec.dtype.size for size, spec in zip(sizes, specs, strict=True)))


def _with_callees(graphs: list[Any]) -> list[Any]:
    """Return graphs and those of their callees, without the functions of datasets in them."""
    found = reached(
        graphs,
        lambda graph: [
            called
            for op in graph.get_operations()
            if not _makes_dataset(op)
            for called in _graphs_called_by(op)
        ],
    )
    return list(found)


def _graphs_called_by(op: Any) -> list[Any]:
    """Return the graphs of the functions in an op's attributes, with the user's lines if known."""
    # private: the functions that a graph knows
    known = getattr(op.graph, "_functions", {})
    graphs = {name: getattr(known.get(name), "graph", None) for name in called_by(op.node_def)}
    return [
        graph_of(definition_of(name), None) if graph is None else graph
        for name, graph in graphs.items()
    ]


def _makes_dataset(op: Any) -> bool:
    return _STAGE_OP.match(op.type) is not None and bool(op.outputs)


def _stage_type(name: str) -> str:
    """Return the type of a stage from the name of a class or op: `ParallelMap`."""
    match = _STAGE_OP.match(name)
    return match["type"] if match else name.strip("_")
