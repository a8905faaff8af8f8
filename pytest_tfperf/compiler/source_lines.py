"""Source lines of ops in the user's code, outside TensorFlow, packages and the standard library."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from time import perf_counter
from types import CodeType, FrameType
from typing import Any

from pytest_tfperf.compiler.functions import called_by
from pytest_tfperf.files import is_installed
from pytest_tfperf.graphs import OpNode, Tensor, reached
from pytest_tfperf.op_types import FUNCTION_CALLS, computes, is_pipeline

_PYTHON_OPS = "tensorflow/python/ops/script_ops.py"
CALLBACKS = ("keras/src/callbacks/callback_list.py", "keras/src/callbacks.py")
_FRAMEWORKS = ("tensorflow", "keras", "tf_keras")
_AUTOGRAPH = "__autograph_generated_file"  # tensorflow/python/autograph/pyct/loader.py
_NO_FILE = "<"  # exec and the like
_LARGE_CONSTANT = 1024  # elements


def user_line_now() -> str | None:
    """Return the innermost line of the user's code in this thread's stack, as `model.py:12`."""
    return _first_user_line(_frames())


def in_python_op() -> bool:
    """
    Return whether this thread runs a Python function called by an op of a graph.

    Such ops come from tf.py_function, tf.numpy_function and from_generator.
    """
    return any(file.endswith(_PYTHON_OPS) for file, _ in _frames())


def keras_callback_now() -> str | None:
    """Return the method of the user's Keras callback that this thread runs, as `Logger.on_…`."""
    inner: FrameType | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if inner is not None and frame.f_code.co_filename.endswith(CALLBACKS):
            owner = type(inner.f_locals.get("self")).__name__
            return f"{owner}.{inner.f_code.co_name}"
        inner, frame = frame, frame.f_back
    return None


def user_line(op: Any) -> str | None:
    """Return the innermost line of the user's code that created an op, None if unknown."""
    frames = reversed(op.traceback or ())
    return _first_user_line((frame.filename, frame.lineno) for frame in frames)


def places(graphs: Iterable[Any], names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """
    Return the user's line and function (`model.py:12`, `model.py:block`) of ops by name.

    A name that means ops of several lines has no place. Names include those of calls that were
    inlined (`PartitionedCall_1/MatMul`), and graphs mean their callees too.
    """
    callers = list(graphs)
    callees = [inner for graph in callers for inner in _graphs(graph).values()]
    found = {}
    for name in names:
        ops = [_op(graph, name) for graph in callers]
        if not any(ops):
            ops = [_op(graph, name) for graph in callees]
        lines = set(filter(None, map(_place, filter(None, ops))))
        if len(lines) == 1:
            found[name] = lines.pop()
    return found


def _op(graph: Any, name: str) -> Any:
    """Return the op of a name in a graph, or in a function that the graph calls; None without."""
    parts = name.split("/")
    for length in range(len(parts), 0, -1):
        try:
            op = graph.get_operation_by_name("/".join(parts[:length]))
        except (AttributeError, KeyError, ValueError):
            continue
        if length == len(parts):
            return op
        if op.type in FUNCTION_CALLS:
            # private: the functions that a graph knows
            called = getattr(graph, "_functions", {}).get(op.get_attr("f").name)
            return _op(getattr(called, "graph", None), "/".join(parts[length:]))
    return None


def _place(op: Any) -> tuple[str, str] | None:
    for frame in reversed(op.traceback or ()):
        if line := user_line_of(frame.filename, frame.lineno):
            function = frame.name.replace("<lambda>", "")  # AutoGraph leaves its name empty
            return line, f"{line.rpartition(':')[0]}:{function}".rstrip(":")
    return None


def nodes_of(graphs: Iterable[Any], max_seconds: float) -> tuple[OpNode, ...]:
    """
    Return the ops of FuncGraphs, and behind each op those of the functions that it runs.

    Calls themselves and the functions of tf.data are left out. An op takes 0.1 to 0.2 ms. There is
    none if that takes longer than the time limit, since only the causes of failures need them.
    """
    deadline = perf_counter() + max_seconds
    found: list[OpNode] = []

    def add(graph: Any, callees: dict[str, Any], scope: str) -> None:
        for op in graph.get_operations():
            if perf_counter() > deadline:
                raise TimeoutError
            if op.type not in FUNCTION_CALLS:
                found.append(_node(op, scope))
            for name in () if is_pipeline(op.type) else called_by(op.node_def):
                if name in callees:
                    add(callees[name], callees, f"{scope}{op.name}/")

    try:
        for graph in graphs:
            add(graph, _graphs(graph), "")
    except Exception:  # an error of TensorFlow's must not end the user's test
        return ()
    return tuple(found)


def _node(op: Any, scope: str) -> OpNode:
    """Return an op as a value; its line is the slowest to find."""
    is_large = op.type == "Const" and (op.outputs[0].shape.num_elements() or 0) > _LARGE_CONSTANT
    is_listed = is_large or (computes(op.type) and op.type != "Placeholder")
    return OpNode(
        name=f"{scope}{op.name}",
        op_type=op.type,
        inputs=tuple(_tensor(one, scope) for one in op.inputs),
        outputs=tuple(_tensor(one, scope) for one in op.outputs),
        line=user_line(op) if is_listed else None,
    )


def _tensor(tensor: Any, scope: str) -> Tensor:
    shape = None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
    return Tensor(shape=shape, dtype=tensor.dtype.base_dtype.name, op=f"{scope}{tensor.op.name}")


def user_line_of(file: str, line: int) -> str | None:
    """Return a line as `model.py:12`, None if it is not of the user's code."""
    return _first_user_line([(file, line)])


def line_of_code(code: CodeType | None) -> str | None:
    """Return the first line of a Python function in the user's code, None if it is elsewhere."""
    return _first_user_line([(code.co_filename, code.co_firstlineno)]) if code else None


def lines_in(graph: Any) -> Callable[..., str | None]:
    """
    Return a function that finds the user's line of a NodeDef in a FuncGraph or its callees.

    It takes the NodeDef and `owner`, the name of the function that holds it if it was not inlined.
    A node that replaces a call, a loop or a branch has the line of that op. Other nodes that
    Grappler created have none.
    """
    graphs = _graphs(graph)

    def line(node: Any, owner: str | None = None) -> str | None:
        inlined_from, name = _origin(node)
        op = _closest_op(graphs.get(inlined_from or owner or "", graph), name)
        return user_line(op) if op is not None else None

    return line


def traced_ops(graph: Any) -> Callable[[Any], Any]:
    """Return a function that finds the op of a NodeDef in a FuncGraph or its callees, or None."""
    graphs = _graphs(graph)

    def op(node: Any) -> Any:
        owner, name = _origin(node)
        try:
            if node.op == "_Arg":  # the runtime names arguments anew
                return graph.inputs[node.attr["index"].i].op
            return (graphs[owner] if owner else graph).get_operation_by_name(name)
        except (AttributeError, IndexError, KeyError):
            return None

    return op


def _origin(node: Any) -> tuple[str, str]:
    """Return the function from which Grappler inlined a NodeDef, if any, and its name there."""
    origin = node.experimental_debug_info
    owner = origin.original_func_names[-1] if origin.original_func_names else ""
    return owner, origin.original_node_names[-1] if origin.original_node_names else node.name


def _closest_op(graph: Any, name: str) -> Any:
    """Return the op of a name, or the op whose name is the scope around it."""
    parts = name.removesuffix("_0").split("/")  # functions under a tape add _0 to names of ops
    for candidate in [name, *("/".join(parts[:length]) for length in range(len(parts), 0, -1))]:
        try:
            return graph.get_operation_by_name(candidate)
        except (AttributeError, KeyError):
            continue
    return None


def _graphs(graph: Any) -> dict[str, Any]:
    """Return the graphs of a graph's direct and indirect callees, by name."""

    def named(owner: Any) -> list[tuple[str, Any]]:
        functions = getattr(owner, "_functions", {})  # private: the functions that a graph knows
        graphs = ((name, getattr(function, "graph", None)) for name, function in functions.items())
        return [(name, inner) for name, inner in graphs if inner is not None]

    owners = reached([graph], lambda owner: [inner for _, inner in named(owner)])
    return {name: inner for owner in owners for name, inner in named(owner)}


def _frames() -> Iterator[tuple[str, int]]:
    """Yield files and lines of the stack, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def _first_user_line(frames: Iterable[tuple[str, int]]) -> str | None:
    written = (
        _as_written(file, line) if _AUTOGRAPH in file else (file, line) for file, line in frames
    )
    return next(
        (f"{Path(file).name}:{line}" for file, line in written if _is_user_file(file)), None
    )


@cache
def _as_written(file: str, line: int) -> tuple[str, int]:
    """
    Return the user's line from which AutoGraph generated a line.

    TensorFlow maps stacks back itself, but not in tf.distribute's threads.
    """
    try:
        # private: it keeps the source map of every converted function
        from tensorflow.python.autograph.impl.api import _TRANSPILER

        maps = [
            factory.source_map
            for factories in list(_TRANSPILER._cache._cache.values())
            for factory in list(factories.values())
        ]
    except (ImportError, AttributeError):
        return file, line
    origins = (
        origin.loc
        for lines in maps
        for generated, origin in lines.items()
        if (generated.filename, generated.lineno) == (file, line)
    )
    return next(((place.filename, place.lineno) for place in origins), (file, line))


@cache
def _is_user_file(file: str) -> bool:
    path = file.replace("\\", "/")
    if path.startswith(_NO_FILE) or _AUTOGRAPH in path or is_installed(path):
        return False
    return not path.startswith(_library_folders())


@cache
def _library_folders() -> tuple[str, ...]:
    """Return the folders of the standard library, commands, this package and TensorFlow."""
    paths = sysconfig.get_paths()
    modules = [__package__.partition(".")[0], *_FRAMEWORKS]
    packages = [
        Path(file).parent
        for name in modules
        if (file := getattr(sys.modules.get(name), "__file__", None))
    ]
    folders = [Path(paths[key]) for key in ("stdlib", "platstdlib", "scripts")] + packages
    return tuple(
        {f"{path.as_posix()}/" for folder in folders for path in (folder, folder.resolve())}
    )
