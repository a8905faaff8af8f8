"""
Change the stages of a tf.data.Dataset in its serialised graph.

Options of tf.data leave stages that run Python as they are; the graph does not. The ops and their
inputs are those of tensorflow/core/ops/dataset_ops.cc in TensorFlow 2.18 to 2.22.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from pytest_tfperf.compiler.functions import Unsupported
from pytest_tfperf.compiler.source_lines import user_line_of
from pytest_tfperf.frameworks.tensorflow import load_tensorflow
from pytest_tfperf.text import elide

_MOST_BYTES = 2**31  # of a protocol buffer (protobuf.dev, "Encoding": size limit)
_AUTOTUNE = -1
_METHODS = {"_MapDataset": "map", "_InterleaveDataset": "interleave"}
"""Sequential stages that can be parallel, by the classes of their datasets."""
_SHOWN = 40  # characters of an argument in a line of code


def stages_to_parallelise(dataset: Any) -> list[tuple[str, CodeType | None]]:
    """Return method and Python code of each sequential map and interleave, the source first."""
    found = []
    for stage in _chain(dataset):
        if method := _METHODS.get(type(stage).__name__):
            # private: the Python function of a stage (2.18 to 2.22)
            function = getattr(getattr(stage, "_map_func", None), "_func", None)
            found.append((method, getattr(function, "__code__", None)))
    return found[::-1]


def stage_names(dataset: Any) -> list[str]:
    """Return the names of a dataset's classes, the last stage first."""
    return [type(stage).__name__ for stage in _chain(dataset)]


def parallel(dataset: Any) -> Any:
    """
    Return a dataset whose sequential maps and interleaves run in parallel, in the same order.

    Raises:
        Unsupported: If the graph of this dataset, or of this TensorFlow, cannot be changed.
    """
    tf = load_tensorflow()
    if _bytes_in(dataset) > _MOST_BYTES:
        raise Unsupported("the dataset holds arrays of more than 2 GB, which its graph would copy")
    try:
        # private: the graph, and a dataset of an op (2.18 to 2.22)
        from tensorflow.python.data.ops.dataset_ops import _VariantDataset

        graph = tf.compat.v1.GraphDef.FromString(dataset._as_serialized_graph().numpy())
    except Exception as error:
        raise Unsupported(f"the dataset has no graph to change: {_first_line(error)}") from error
    for node in list(graph.node):
        if node.op == "MapDataset":
            node.op = "ParallelMapDatasetV2"
            node.input.append(_constant(graph, node, "calls", _AUTOTUNE))
            node.attr.pop("force_synchronous", None)
        elif node.op == "InterleaveDataset":
            node.op = "ParallelInterleaveDatasetV4"
            for name in ("buffered", "prefetched", "calls"):
                node.input.append(_constant(graph, node, name, _AUTOTUNE))
        else:
            continue
        node.attr["deterministic"].s = b"default"
    try:
        variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    except Exception as error:
        raise Unsupported(f"the changed graph is no dataset: {_first_line(error)}") from error
    return _VariantDataset(variant, dataset.element_spec)


def line_of_stage(method: str, code: CodeType | None, files: Iterable[str]) -> str:
    """
    Return where a stage is written and its parallel form: `pipeline.py:24  .map(load, …)`.

    Args:
        method: The method that makes the stage.
        code: Code of its Python function, if known.
        files: Further files that may call the method.
    """
    parallel = "num_parallel_calls=tf.data.AUTOTUNE"
    if code is None:
        return f".{method}(…, {parallel})"
    calls = {
        (file, line, text)
        for file in dict.fromkeys([code.co_filename, *files])
        for line, text in _calls(file, method, code)
    }
    name = "lambda" if code.co_name == "<lambda>" else code.co_name
    if len(calls) != 1:
        return f".{method}({name}, {parallel})"
    file, line, text = calls.pop()
    where = user_line_of(file, line)
    written = f".{method}({elide(text, _SHOWN)}, {parallel})"
    return f"{where}  {written}" if where else written


def _calls(file: str, method: str, code: CodeType) -> Iterator[tuple[int, str]]:
    """Yield line and first argument of each call of a method with this function."""
    try:
        text = Path(file).read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr != method or not node.args:
            continue
        first = node.args[0]
        is_it = (
            first.lineno == code.co_firstlineno and file == code.co_filename
            if isinstance(first, ast.Lambda)
            else getattr(first, "id", getattr(first, "attr", None)) == code.co_name
        )
        if is_it:
            yield node.func.end_lineno or node.lineno, ast.get_source_segment(text, first) or ""


def _chain(dataset: Any) -> Iterator[Any]:
    """Yield the datasets that a dataset is made from, itself first."""
    # private: the inputs of a dataset (2.18 to 2.22)
    waiting = [dataset]
    while waiting:
        stage = waiting.pop(0)
        yield stage
        inputs = getattr(stage, "_inputs", None)
        waiting += inputs() if inputs else []


def _bytes_in(dataset: Any) -> int:
    """Return the bytes of the arrays that the sources and functions of a dataset hold."""
    # private: the tensors of from_tensors and from_tensor_slices, and the functions (2.18 to 2.22)
    tensors = [
        tensor
        for stage in _chain(dataset)
        for tensor in (
            *getattr(stage, "_tensors", ()),
            *getattr(
                getattr(getattr(stage, "_map_func", None), "function", None), "captured_inputs", ()
            ),
        )
    ]
    return sum((one.shape.num_elements() or 0) * one.dtype.size for one in tensors)


def _constant(graph: Any, node: Any, name: str, value: int) -> str:
    """Add an int64 constant to a graph, and return its name."""
    tf = load_tensorflow()
    added = graph.node.add()
    added.name, added.op = f"{node.name}/{name}", "Const"
    added.attr["dtype"].type = tf.int64.as_datatype_enum
    added.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int64))
    return str(added.name)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
