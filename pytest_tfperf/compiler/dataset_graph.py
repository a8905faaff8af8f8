"""
Change the stages of a tf.data.Dataset in its serialised graph.

Options of tf.data leave stages that run Python as they are; the graph does not. The ops and their
inputs are those of tensorflow/core/ops/dataset_ops.cc in TensorFlow 2.18 to 2.22.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import Any

from pytest_tfperf.compiler.functions import Unsupported
from pytest_tfperf.compiler.source_lines import user_line_of
from pytest_tfperf.frameworks.tensorflow import load_tensorflow
from pytest_tfperf.op_types import PYTHON_OPS
from pytest_tfperf.text import elide

_MOST_BYTES = 2**31  # of a protocol buffer (protobuf.dev, "Encoding": size limit)
_AUTOTUNE = -1
IN_PARALLEL = ", num_parallel_calls=tf.data.AUTOTUNE"
_SEQUENTIAL = frozenset({"_MapDataset", "_InterleaveDataset"})
"""Classes of the datasets of sequential stages that can be parallel."""
_WAITS = PYTHON_OPS | {
    *("ReadFile", "TFRecordDataset", "TFRecordDatasetV2", "TextLineDataset"),
    *("FixedLengthRecordDataset", "FixedLengthRecordDatasetV2"),
}
"""Ops that may wait for something other than a core (io_ops.cc, dataset_ops.cc)."""
_BATCHES = frozenset({"BatchDatasetV2"})
_MOVABLE = {
    "ShardDataset": "shard",
    "SkipDataset": "skip",
    "FilterDataset": "filter",
    "BatchDatasetV2": "batch",
}
"""Stages that take fewer or larger elements to the map behind them, and their methods."""
_STATE = re.compile(r"Random|Rng|Multinomial|Variable|Assign|Print|Call|If|While")
"""Ops that give something else when they are called less often, or that hide ops in a function."""
_ELEMENTWISE = frozenset(
    {"Abs", "Add", "AddV2", "Cast", "Ceil", "Cos", "Div", "DivNoNan", "Equal", "Erf", "Exp"}
    | {"Expm1", "Floor", "FloorDiv", "FloorMod", "Greater", "GreaterEqual", "Identity", "Less"}
    | {"LessEqual", "Log", "Log1p", "LogicalAnd", "LogicalNot", "LogicalOr", "Maximum", "Minimum"}
    | {"Mul", "Neg", "NotEqual", "Pow", "RealDiv", "Reciprocal", "Relu", "Round", "Rsqrt"}
    | {"Sigmoid", "Sign", "Sin", "Sqrt", "Square", "SquaredDifference", "Sub", "Tanh"}
)
"""Ops of numbers at the same place of their inputs (math_ops.cc, nn_ops.cc)."""
_SHOWN = 40  # characters of an argument in a line of code


def stages_to_parallelise(dataset: Any) -> list[tuple[str, CodeType | None]]:
    """Return method and Python code of each sequential map and interleave, the source first."""
    stages = [one for one in _chain(dataset) if type(one).__name__ in _SEQUENTIAL]
    return [stage_of(one) for one in reversed(stages)]


def stage_of(dataset: Any) -> tuple[str, CodeType | None]:
    """Return the method that makes a dataset from another one, and the code of its function."""
    name = type(dataset).__name__.strip("_").removeprefix("Parallel").removesuffix("Dataset")
    # private: the Python function of a stage (2.18 to 2.22)
    function = getattr(getattr(dataset, "_map_func", None), "_func", None)
    method = re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return method, getattr(function, "__code__", None)


def stage_names(dataset: Any) -> list[str]:
    """Return the names of a dataset's classes, the last stage first."""
    return [type(stage).__name__ for stage in _chain(dataset)]


def parallel(dataset: Any, calls: int = _AUTOTUNE) -> Any:
    """
    Return a dataset whose maps and interleaves run in parallel, in the same order.

    Sequential interleaves choose their calls by themselves. Raises: Unsupported, if the graph of
    this dataset, or of this TensorFlow, cannot be changed.
    """

    def change(graph: Any) -> None:
        for node in list(graph.node):
            if node.op == "MapDataset":
                node.op = "ParallelMapDatasetV2"
                node.input.append(_constant(graph, node, "calls", calls))
                node.attr.pop("force_synchronous", None)
            elif node.op == "InterleaveDataset":
                node.op = "ParallelInterleaveDatasetV4"
                for name in ("buffered", "prefetched", "calls"):  # as many as sources at most
                    node.input.append(_constant(graph, node, name, _AUTOTUNE))
            elif node.op == "ParallelMapDatasetV2" and calls != _AUTOTUNE:
                node.input[-1] = _constant(graph, node, "calls", calls)
                continue
            else:
                continue
            node.attr["deterministic"].s = b"default"

    return _changed(dataset, change)


def with_parallel_batches(dataset: Any) -> Any:
    """Return a dataset that copies the elements of a batch in parallel. Raises: Unsupported."""

    def change(graph: Any) -> None:
        for node in list(graph.node):
            if node.op == "BatchDatasetV2":
                node.op = "ParallelBatchDataset"
                node.input.insert(2, _constant(graph, node, "calls", _AUTOTUNE))
                node.attr["deterministic"].s = b"default"

    return _changed(dataset, change)


def bytes_of_batches(dataset: Any) -> list[int | None]:
    """Return the bytes of each batch whose elements are copied one by one, None if unknown."""
    tf = load_tensorflow()
    found: list[int | None] = []
    for stage in _chain(dataset):
        if type(stage).__name__ == "_BatchDataset":
            # private: its size and its input (2.18 to 2.22)
            n = tf.get_static_value(getattr(stage, "_batch_size", None))
            specs = tf.nest.flatten(stage._inputs()[0].element_spec)
            parts = [_bytes_of(spec) for spec in specs]
            known = [part for part in parts if part is not None]
            is_known = n is not None and len(known) == len(parts)
            found.append(int(n) * sum(known) if is_known else None)
    return found


def moved_before_maps(dataset: Any) -> Any:
    """Return a dataset that shards, skips, filters and batches before maps where it may."""

    def change(graph: Any) -> None:
        functions = {one.signature.name: one for one in graph.library.function}
        while any(_moved(graph, node, functions) for node in list(graph.node)):
            pass

    return _changed(dataset, change)


def stages_to_move(dataset: Any) -> list[tuple[str, CodeType | None]]:
    """Return each stage that belongs before the map in front of it, and the map's Python code."""
    try:
        graph = _small_graph_of(dataset)
    except Unsupported:
        return []
    functions = {one.signature.name: one for one in graph.library.function}
    by_name = {node.name: node for node in graph.node}
    codes = {}
    for stage in _chain(dataset):
        function = getattr(stage, "_map_func", None)  # private (2.18 to 2.22)
        name = getattr(getattr(function, "function", None), "name", None)
        _, code = stage_of(stage)
        codes[name.decode() if isinstance(name, bytes) else name] = code
    return [
        (_MOVABLE[node.op], codes.get(by_name[node.input[0]].attr["f"].func.name))
        for node in graph.node
        if _may_move(graph, node, functions)
    ]


def with_source(dataset: Any, source: Any, new: Any) -> Any:
    """Return a dataset with `new` in place of `source` (see `from_end`). Raises: Unsupported."""
    tf = load_tensorflow()
    graph = _small_graph_of(dataset)
    by_name = {node.name: node for node in graph.node}
    [result] = (node for node in graph.node if node.op == "_Retval")
    graph.node.remove(result)
    last = name = result.input[0]
    for stage in from_end(dataset):
        if stage is source:
            break
        node = by_name[name]
        if not node.op.startswith(type(stage).__name__.strip("_")):
            raise Unsupported(f"the dataset's graph has {node.op} where Python has another stage")
        name = node.input[0]

    def made(variant: Any) -> Any:
        [found] = tf.graph_util.import_graph_def(graph, {f"{name}:0": variant}, [f"{last}:0"])
        return found

    build = tf.function(made, autograph=False)
    return _dataset_of(lambda: build(new._variant_tensor), dataset)


def from_end(dataset: Any) -> Iterator[Any]:
    """Yield a dataset, and what it is made from as long as that is one dataset."""
    stages = [dataset]
    while len(stages) == 1:
        yield stages[0]
        inputs = getattr(stages[0], "_inputs", None)  # private (2.18 to 2.22)
        stages = inputs() if inputs else []


def elements_in(dataset: Any, source: Any) -> int:
    """Return how many elements of a source one of a dataset takes, as far as its batches tell."""
    tf = load_tensorflow()
    behind = itertools.takewhile(lambda stage: stage is not source, from_end(dataset))
    # private: the size of a batch (2.18 to 2.22)
    sizes = (tf.get_static_value(getattr(stage, "_batch_size", None)) for stage in behind)
    return math.prod(int(size) for size in sizes if size is not None)


def has_fixed_shuffle(dataset: Any) -> bool:
    """Return whether a shuffle gives one order in each epoch, which depends on all its elements."""
    # private (2.18 to 2.22)
    return any(not getattr(one, "_reshuffle_each_iteration", True) for one in _chain(dataset))


def may_wait(dataset: Any) -> bool:
    """Return whether a map or interleave calls Python or reads files, which it may wait for."""
    for stage in _chain(dataset):
        if type(stage).__name__.strip("_").removeprefix("Parallel").startswith(("Map", "Interl")):
            for function in stage._functions():  # private (2.18 to 2.22)
                graph = function.function.graph.as_graph_def()
                nodes = [node for one in graph.library.function for node in one.node_def]
                if any(node.op in _WAITS for node in (*graph.node, *nodes)):
                    return True
    return False


def _moved(graph: Any, node: Any, functions: dict[str, Any]) -> bool:
    """Let a stage change places with the map in front of it, if it may; return whether."""
    if not _may_move(graph, node, functions):
        return False
    by_name = {one.name: one for one in graph.node}
    upper = by_name[node.input[0]]
    source = by_name[upper.input[0]]
    if node.op == "FilterDataset":
        predicate = functions[node.attr["predicate"].func.name]
        own = _on_source(predicate, functions[upper.attr["f"].func.name], _n_parts(upper), source)
        graph.library.function.append(own)
        functions[own.signature.name] = own
        node.attr["predicate"].func.name = own.signature.name
    for one in graph.node:
        if one is not node:
            one.input[:] = [upper.name if name == node.name else name for name in one.input]
    node.input[0], upper.input[0] = source.name, node.name
    upper.attr["output_shapes"].CopyFrom(node.attr["output_shapes"])
    node.attr["output_types"].CopyFrom(source.attr["output_types"])
    batch = node.attr["output_shapes"].list.shape[0].dim[0].size if node.op in _BATCHES else None
    node.attr["output_shapes"].CopyFrom(source.attr["output_shapes"])
    for shape in node.attr["output_shapes"].list.shape:
        if batch is not None:
            sizes = [batch, *(one.size for one in shape.dim)]
            del shape.dim[:]
            for size in sizes:
                shape.dim.add().size = size
    return True


def _may_move(graph: Any, node: Any, functions: Mapping[str, Any]) -> bool:
    """Return whether a stage gives the same elements before the map in front of it."""
    if node.op not in _MOVABLE:
        return False
    by_name = {one.name: one for one in graph.node}
    upper = by_name.get(node.input[0])
    if upper is None or upper.op not in ("MapDataset", "ParallelMapDatasetV2"):
        return False
    source = by_name[upper.input[0]]
    if sum(upper.name in one.input for one in graph.node) != 1 or "output_types" not in source.attr:
        return False
    function = functions[upper.attr["f"].func.name]
    if any(_STATE.search(one.op) for one in function.node_def):
        return False
    if node.op in _BATCHES:
        return _is_elementwise(function, source)
    if node.op == "FilterDataset":
        predicate = functions[node.attr["predicate"].func.name]
        return _on_source(predicate, function, _n_parts(upper), source) is not None
    return True


def _n_parts(upper: Any) -> int:
    return len(upper.attr["output_types"].list.type)


def _on_source(predicate: Any, function: Any, n_parts: int, source: Any) -> Any:
    """Return a predicate on what a map takes; None if it needs what the map computes."""
    producers = {one.name: one for one in function.node_def}
    taken = [arg.name for arg in function.signature.input_arg]
    n_taken = len(source.attr["output_types"].list.type)
    used = {name.partition(":")[0].lstrip("^") for one in predicate.node_def for name in one.input}
    used |= {name.partition(":")[0] for name in predicate.ret.values()}
    new = {}
    for arg, result in zip(
        predicate.signature.input_arg, function.signature.output_arg[:n_parts], strict=False
    ):
        name = function.ret[result.name]
        while (one := producers.get(name.partition(":")[0])) and one.op == "Identity":
            name = one.input[0]
        if name in taken[:n_taken]:
            new[arg.name] = f"element_{taken.index(name)}"
        elif arg.name in used:
            return None
    made = type(predicate)()
    made.CopyFrom(predicate)
    made.signature.name = f"{predicate.signature.name}_before"
    captured = list(predicate.signature.input_arg)[n_parts:]
    del made.signature.input_arg[:]
    made.arg_attr.clear()
    for place, arg in enumerate(function.signature.input_arg[:n_taken]):
        made.signature.input_arg.add(name=f"element_{place}", type=arg.type)
    made.signature.input_arg.extend(captured)
    for one in made.node_def:
        one.input[:] = [new.get(name, name) for name in one.input]
    for name, value in list(made.ret.items()):
        made.ret[name] = new.get(value, value)
    return made


def _is_elementwise(function: Any, source: Any) -> bool:
    """Return whether a map computes each number of its results from numbers at the same place."""
    shapes = source.attr["output_shapes"].list.shape
    args = [arg.name for arg in function.signature.input_arg]
    if len(args) != len(shapes) or any(shape.unknown_rank for shape in shapes):
        return False
    ranks: dict[str, int | None] = {
        name: len(shape.dim) for name, shape in zip(args, shapes, strict=True)
    }
    for node in function.node_def:  # in the order of their inputs
        inputs = [name.partition(":")[0] for name in node.input if not name.startswith("^")]
        if node.op == "Const":
            if node.attr["value"].tensor.tensor_shape.dim:
                return False
            ranks[node.name] = None
        elif node.op in _ELEMENTWISE and all(name in ranks for name in inputs):
            own = {ranks[name] for name in inputs} - {None}
            if len(own) > 1:
                return False
            ranks[node.name] = own.pop() if own else None
        else:
            return False
    results = [ranks.get(name.partition(":")[0]) for name in function.ret.values()]
    return None not in results


def _graph_of(dataset: Any) -> Any:
    """Return the graph of a dataset. Raises: Unsupported, if it has none."""
    tf = load_tensorflow()
    try:
        # private (2.18 to 2.22)
        return tf.compat.v1.GraphDef.FromString(dataset._as_serialized_graph().numpy())
    except Exception as error:
        raise Unsupported(f"the dataset has no graph to change: {_first_line(error)}") from error


def _changed(dataset: Any, change: Callable[[Any], None]) -> Any:
    """Return the dataset of a changed graph, of the same elements. Raises: Unsupported."""
    tf = load_tensorflow()
    graph = _small_graph_of(dataset)
    change(graph)
    content = graph.SerializeToString()
    return _dataset_of(lambda: tf.raw_ops.DatasetFromGraph(graph_def=content), dataset)


def _small_graph_of(dataset: Any) -> Any:
    """Return a graph to be changed. Raises: Unsupported, if there is none or it is too large."""
    if _bytes_in(dataset) > _MOST_BYTES:
        raise Unsupported("the dataset holds arrays of more than 2 GB, which its graph would copy")
    return _graph_of(dataset)


def _dataset_of(make: Callable[[], Any], like: Any) -> Any:
    """Return the dataset that an op makes. Raises: Unsupported, if TensorFlow refuses it."""
    try:
        # private: a dataset of an op (2.18 to 2.22)
        from tensorflow.python.data.ops.dataset_ops import _VariantDataset

        return _VariantDataset(make(), like.element_spec)
    except Exception as error:
        raise Unsupported(f"the changed graph is no dataset: {_first_line(error)}") from error


def line_of_stage(
    method: str, code: CodeType | None, files: Iterable[str], more: str = IN_PARALLEL
) -> str:
    """
    Return where a stage is written and its parallel form: `pipeline.py:24  .map(load, …)`.

    `code` is that of its function, `files` may call the method too, and `more` are arguments with
    a comma and blank before them.
    """
    if code is None:
        return f".{method}(…{more})"
    calls = {
        (file, line, text)
        for file in dict.fromkeys([code.co_filename, *files])
        for line, text in _calls(file, method, code)
    }
    name = "lambda" if code.co_name == "<lambda>" else code.co_name
    if len(calls) != 1:
        return f".{method}({name}{more})"
    file, line, text = calls.pop()
    where = user_line_of(file, line)
    written = f".{method}({elide(text, _SHOWN)}{more})"
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


def _bytes_of(spec: Any) -> int | None:
    """Return the bytes of a tensor, None if they are not known before it is there."""
    is_plain = type(spec) is load_tensorflow().TensorSpec and spec.dtype.size
    size = spec.shape.num_elements() if is_plain else None
    return None if size is None else int(size * spec.dtype.size)


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
