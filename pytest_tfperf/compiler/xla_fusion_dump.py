"""
A step's HLO before and after XLA's fusion passes, from a dump of its compiler.

XLA reads its dump options from the environment when it starts. So a child process compiles the
functions of the step again, from their definitions and the specifications of their arguments.
Variables hold no values there, since nothing runs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_tfperf.compiler.compilable_parts import parts_of
from pytest_tfperf.compiler.functions import (
    Function,
    Unsupported,
    called_by,
    check_arguments,
    check_arrays,
    in_order,
    is_resource,
    reached_from,
)
from pytest_tfperf.compiler.lower import (
    device_of,
    replica_batch,
    short_message,
    typical_functions,
)
from pytest_tfperf.compiler.step_calls import Calls
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.hlo.decode import module_at
from pytest_tfperf.hlo.module import HloModule
from pytest_tfperf.protobuf import Message, Record
from pytest_tfperf.temporary import TemporaryFolder
from pytest_tfperf.values import Json

_FUNCTIONS, _REQUEST, _RESULT = "functions.pb", "request.json", "dumped.json"
_LAST_LINES = 10
# Names of fusion passes; the CPU's dot-library-rewriter also fuses products and reductions.
_FUSING = "fusion|library-rewriter"
# Names of dumped files: xla/service/dump.cc, DumpHloModuleBetweenPassesIfEnabled.
_DUMP = re.compile(
    r"(?P<module>module_\d+)\..*\.(?P<number>\d{4,})\.[^.]*"
    r"\.after_(?P<after>.+)\.before_(?P<before>.+)\.hlo\.pb"
)


@dataclass(frozen=True, slots=True)
class FusionStage:
    """A function's HLO before XLA's first fusion pass and after its last."""

    name: str
    """Name of the function."""
    before_module: HloModule
    """Module before the first pass."""
    after_module: HloModule
    """Module after the last pass."""


def fusion_stages(
    calls: Calls, workload: Mapping[str, Any], timeout_s: float
) -> tuple[FusionStage, ...]:
    """
    Compile the typical step's functions again, as a whole for the device of their variables.

    Raises CaptureError, with the process's last lines, if XLA cannot compile one, or it fails.
    """
    parts = _parts(calls, workload)
    with TemporaryFolder() as folder:
        _write_request(parts, folder)
        _run_child(folder, timeout_s)
        dumped = json.loads((folder / _RESULT).read_text("utf-8"))
        return tuple(
            _stage(part.title, folder, names) for part, names in zip(parts, dumped, strict=True)
        )


def _parts(calls: Calls, workload: Mapping[str, Any]) -> list[Function]:
    """Return the functions for XLA to compile, with resources last, each once."""
    functions = typical_functions(calls) if calls.steps and not calls.why else []
    parts: dict[Any, Function] = {}
    for function, per_step in functions:
        try:
            check_arrays(function)
            for part, _ in parts_of(function, replica_batch(workload), 1 / per_step):
                parts[part.key] = in_order(part)
                check_arguments(parts[part.key])
        except Unsupported as error:
            raise CaptureError(f"no HLO before and after fusion: {error}") from error
        except Exception as error:  # any error of TensorFlow's compiler
            raise CaptureError(
                f"no HLO before and after fusion of {function.title}: {short_message(error)}"
            ) from error
    if not parts:
        why = calls.why or "the step calls no tf.function that computes"
        raise CaptureError(f"no HLO before and after fusion: {why}")
    return list(parts.values())


def _write_request(parts: Sequence[Function], folder: Path) -> None:
    """Write the child's input: a FunctionDefLibrary, and each function's device and arguments."""
    from tensorflow.core.framework import function_pb2

    own = {part.name: part.definition for part in parts if part.definition is not None}
    called = [
        name
        for definition in own.values()
        for node in definition.node_def
        for name in called_by(node)
    ]
    library = function_pb2.FunctionDefLibrary()
    library.function.extend(
        reached_from([*called, *(part.name for part in parts if part.name not in own)])
    )
    library.function.extend(own.values())
    (folder / _FUNCTIONS).write_bytes(library.SerializeToString())
    request = [
        {"name": part.name, "device": device_of(part), "args": list(map(_describe, part.args))}
        for part in parts
    ]
    (folder / _REQUEST).write_text(json.dumps(request), "utf-8")


def _describe(arg: Any) -> Json:
    """Return dtype and shape of a tensor, or of a variable's value."""
    from tensorflow.python.ops import gen_resource_variable_ops

    if not is_resource(arg):
        return {
            "variable": False,
            "dtype": arg.dtype.as_datatype_enum,
            "shape": arg.shape.as_list(),
        }
    return {
        "variable": True,
        # private: the only place where a handle keeps the type of its variable
        "dtype": arg._handle_data.shape_and_type[0].dtype,
        "shape": gen_resource_variable_ops.variable_shape(arg).numpy().tolist(),
    }


def _run_child(folder: Path, timeout_s: float) -> None:
    command = [sys.executable, "-m", __name__, str(folder)]
    try:
        subprocess.run(
            command, env=_environment(folder), capture_output=True, timeout=timeout_s, check=True
        )
    except subprocess.TimeoutExpired as error:
        raise CaptureError(
            f"compiling the step again takes longer than {timeout_s:g} s{_last_lines(error.stderr)}"
        ) from error
    except subprocess.CalledProcessError as error:
        raise CaptureError(
            f"compiling the step again failed with status {error.returncode}"
            f"{_last_lines(error.stderr)}"
        ) from error


def _environment(folder: Path) -> dict[str, str]:
    """Return the child's environment: XLA dumps around fusion passes, and it shares the GPU."""
    flags = os.environ.get("XLA_FLAGS", "")
    if flags.strip() and not flags.lstrip().startswith("-"):
        # Then it is the name of a file (xla/parse_flags_from_env.cc).
        flags = Path(flags.strip()).read_text("utf-8")
    dump = (
        f'--xla_dump_to="{folder / "dump"}" --xla_dump_hlo_pass_re=".*({_FUSING}).*" '
        "--xla_dump_hlo_as_proto"
    )
    path = os.pathsep.join(
        [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    return {
        **os.environ,
        "XLA_FLAGS": f"{flags} {dump}",
        "PYTHONPATH": path,
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }


def _last_lines(output: bytes | None) -> str:
    lines = (output or b"").decode("utf-8", "replace").strip().splitlines()
    return ":\n  " + "\n  ".join(lines[-_LAST_LINES:]) if lines else ""


def _stage(title: str, folder: Path, names: Iterable[str]) -> FusionStage:
    """Read the dump around a function's fusion passes, without modules compiled later."""
    dumped = [match for match in map(_DUMP.fullmatch, sorted(names)) if match]
    dumped = [match for match in dumped if match["module"] == dumped[0]["module"]]
    before = next((match[0] for match in dumped if re.search(_FUSING, match["before"])), None)
    after = next(
        (match[0] for match in reversed(dumped) if re.search(_FUSING, match["after"])), None
    )
    if before is None or after is None:
        raise CaptureError(
            f"XLA dumped nothing around a fusion pass when it compiled {title} again"
        )
    return FusionStage(title, _module(folder / "dump" / before), _module(folder / "dump" / after))


def _module(path: Path) -> HloModule:
    """Read a dumped HloProto: hlo_module = 1 (xla/service/hlo.proto)."""
    message = Message(path.read_bytes(), str(path))
    proto = Record(message, 0, message.size, "HloProto")
    return module_at(message, *[(0, 0), *proto.spans(1)][-1])


def _compile_all(folder: Path) -> None:
    """Compile each function, in the child process, and write the names of the files XLA dumped."""
    from tensorflow.core.framework import function_pb2
    from tensorflow.python.eager import context

    runtime = context.context()
    runtime.ensure_initialized()
    library = function_pb2.FunctionDefLibrary.FromString((folder / _FUNCTIONS).read_bytes())
    for definition in library.function:
        runtime.add_function_def(definition)
    dumped: list[list[str]] = []
    seen: set[str] = set()
    for request in json.loads((folder / _REQUEST).read_text("utf-8")):
        _compile(runtime, request)
        names = {path.name for path in (folder / "dump").glob("*")}
        dumped.append(sorted(names - seen))
        seen |= names
    (folder / _RESULT).write_text(json.dumps(dumped), "utf-8")


def _compile(runtime: Any, request: Json) -> None:
    import tensorflow as tf

    args = request["args"]
    with tf.device(request["device"]):
        empty = [
            tf.raw_ops.Empty(
                shape=tf.constant(arg["shape"], tf.int32), dtype=tf.as_dtype(arg["dtype"])
            )
            for arg in args
            if arg["variable"]
        ]
        variables = [tf.Variable(value, shape=value.shape) for value in empty]
    runtime.get_compiler_ir(
        device_name=request["device"],
        platform_name=None,
        function_name=request["name"],
        flat_args=[
            tf.TensorSpec(arg["shape"], tf.as_dtype(arg["dtype"]))
            for arg in args
            if not arg["variable"]
        ],
        captured_inputs=[variable.handle for variable in variables],
        stage="optimized_hlo_serialized",
    )


if __name__ == "__main__":
    _compile_all(Path(sys.argv[1]))
