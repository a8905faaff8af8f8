"""
Events of the host: calls of functions, what tf.data caused, executions and compilations of XLA.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.events import Events, enclosing, joined, parents
from pytest_tfperf.trace.intervals import distinct_values
from pytest_tfperf.trace.stats import Mask, key_field
from pytest_tfperf.trace.xspace import HOST, Plane, Trace, once
from pytest_tfperf.values import WAITS

EAGER = "EagerExecute"
"""Name of the events of TensorFlow's eager runtime, or its start."""
_NAMED = f"{EAGER}: "
_OP_TYPE = re.compile(r"(?!__)[A-Z_]")
"""Start of the type of an op; functions are named as `__inference_step_12`."""
_CALL = "PjitFunction("
_CUT_OFF = 2  # calls, or executions, of a function that a trace holds in part
_LETTERS = re.compile(r"[^A-Za-z0-9]+")
_DATA_LINES = ("tf_data_",)
DATA_RUNS = "InstantiatedCapturedFunction::Run"
"""Name of the events in which tf.data runs a function of the user's."""
CPU_COMPILERS = frozenset({"CpuCompiler::RunBackend", "CpuCompiler::CompileLegacyCpuExecutable"})
"""
Names of the events of XLA's backend for CPUs, from TensorFlow 2.19 on and in 2.18.

Their stat `name` is the module's (xla/service/cpu/cpu_compiler.cc).
"""
GPU_COMPILER = "HLO Transforms:"
"""
Start of the names of the events of GpuCompiler::RunHloPasses.

The module's name follows (xla/service/gpu/gpu_compiler.cc). The backend has no event that names the
module.
"""
COMPILES_FOR_JAX = "backend_compile_and_load"
"""Name of JAX's event around a compilation of XLA, with its backend (jax/_src/compiler.py)."""
_OF_JAX = re.compile(r"(\[\d+\] )?GpuExecutable::ExecuteThunks")
"""JAX's executions on a GPU, from 0.11 on with the device's number (seen on an H200)."""
_MODULE = "hlo_module"
_REF_VALUE = b"\x38"
"""The tag of XStat's ref_value = 7, a varint."""


def runs_functions(trace: Trace) -> bool:
    """Return whether Python called a tf.function or a function of JAX during the trace."""
    host = Events.of(trace.plane(HOST))
    return bool(are_functions(eager_calls(host)).any()) or len(jax_calls(host)) > 0


def eager_calls(host: Events) -> Events:
    """
    Return what TensorFlow's eager runtime executed: ops and functions.

    TensorFlow names it in the stats `eager_op` and `is_func`; its versions of 2020 to 2023 name it
    in the event, `EagerExecute: MatMul`.
    """
    return host.named(lambda name: name == EAGER or name.startswith(_NAMED))


def eager_types(calls: Events) -> list[str]:
    """Return the op or function that each call of the eager runtime executed, "" if unknown."""
    stats = calls.texts("eager_op")
    return [op or name[len(_NAMED) :] for op, name in zip(stats, calls.names, strict=True)]


def are_functions(calls: Events) -> Mask:
    """Return a mask of the calls that executed a function, or what the trace does not name."""
    told, types = calls.integers("is_func", -1), eager_types(calls)
    by_name = [_OP_TYPE.match(one) is None for one in types]
    return np.where(told >= 0, told > 0, np.array(by_name, bool))


def n_events(trace: Trace) -> int:
    """Return the number of events of a trace."""
    return sum(plane.start_ps.size for plane in trace.planes)


def shows_jax_calls(host: Events) -> bool:
    """Return whether the trace shows calls of JAX, be it that with which tf_profile waits."""
    return len(host.named(lambda name: name.startswith(_CALL))) > 0


def jax_calls(host: Events, inner: bool = False) -> Events:
    """Return calls of JAX functions, without tf_profile's waits; `inner` keeps calls in calls."""
    calls = host.named(lambda name: name.startswith(_CALL) and WAITS not in name)
    return (
        calls if inner else calls.where(parents(calls) < 0)
    )  # an event of a call is inside another one


def jax_executions(host: Events) -> Events:
    """Return the events of executions on the threads that called them (xla/pjrt)."""
    return host.named(lambda name: "Executable::Execute" in name)


def executing_calls(host: Events) -> Events:
    """
    Return the innermost calls of JAX in which a program was executed.

    Without compilation (`jax.disable_jit`) and under derivatives, a call runs Python, whose calls
    are inside of it. A call that is only traced, as in the body of `lax.scan`, executes nothing.
    """
    calls = jax_calls(host, inner=True)
    found = enclosing(calls, jax_executions(host))
    return calls.where(np.isin(np.arange(len(calls)), found))


def users_calls(host: Events, own: Collection[str]) -> Events:
    """Return the calls of JAX, but those of functions that JAX itself compiles, by their names."""
    return jax_calls(host).named(lambda name: called_function(name) not in own)


def called_function(event: str) -> str:
    """Return the function's name in an event of a call, `PjitFunction(step)` → `step`."""
    if not event.startswith(_CALL):
        return event
    name = event.partition("(")[2].removesuffix(")")
    return name.removeprefix("jit(").removesuffix(")") if name.startswith("jit(") else name


def is_module_of(module: str, function: str) -> bool:
    """Return whether an executable, `jit_step(7)`, has the name of a function of JAX."""
    return _plain(module.rpartition("(")[0].removeprefix("jit_")) == _plain(function)


@dataclass(frozen=True, slots=True, eq=False)
class Unlinked:
    """Executions of a module on a CPU whose calls the trace does not tell."""

    module: str
    """Name of the module, without `jit_`."""
    n_runs: int
    calls_ps: Ints
    """Starts of the calls of its function in picoseconds, of another number."""
    end_ps: int
    """End of the last execution in picoseconds."""


def launched_ps(plane: Plane) -> Ints:
    """
    Return when the execution of each thunk was launched, shape (n_events,); else an event's start.

    JAX on a CPU runs executables behind the calls that launch them, in the order of the calls. So
    the n-th execution of a module belongs to the n-th call of its function that executes. A module
    whose executions and calls differ in number keeps its own times.
    """
    return _launched(plane)[0]


def unlinked_runs(plane: Plane) -> tuple[Unlinked, ...]:
    """Return the modules whose executions differ in number from the calls of their functions."""
    return _launched(plane)[1]


@once
def _launched(plane: Plane) -> tuple[Ints, tuple[Unlinked, ...]]:
    host, times = Events.of(plane), plane.start_ps.copy()
    ops = without_waits(host.having("run_id").having("hlo_module"))
    if not len(ops):
        return times, ()
    calls = (executing_calls(host) if len(jax_executions(host)) else jax_calls(host)).sorted()
    begun: dict[str, list[int]] = {}
    for name, start in zip(calls.names, calls.start.tolist(), strict=True):
        begun.setdefault(_plain(called_function(name)), []).append(start)
    ordered = ops.sorted()
    _, first, run_of = np.unique(ordered.integers("run_id"), return_index=True, return_inverse=True)
    modules = Events(plane, ordered.rows[first]).texts("hlo_module")
    launched = ordered.start[first].copy()
    by_module: dict[str, list[int]] = {}
    for index in np.argsort(first).tolist():
        by_module.setdefault(_plain(modules[index].removeprefix("jit_")), []).append(index)
    unlinked = []
    for module, indices in by_module.items():
        called = np.array(begun.get(module, ()), np.int64)
        if called.size == len(indices):
            launched[indices] = np.minimum(called, launched[indices])
        elif (call := _alternating(called, launched[indices])) is not None:
            launched[indices] = np.where(call < 0, launched[indices], called[call])
        else:
            last = int(ordered.end[np.isin(run_of, indices)].max())
            name = modules[indices[0]].removeprefix("jit_")
            unlinked.append(Unlinked(name, len(indices), called, last))
    times[ordered.rows] = launched[run_of]
    return times, tuple(unlinked)


def _alternating(called: Ints, begun: Ints) -> Ints | None:
    """
    Return the call of each execution, -1 for none, where each call waits for its own.

    Then a call and an execution take turns, but for those that a trace's begin and end cut off.
    """
    call: Ints = np.searchsorted(called, begun, side="right") - 1
    linked = call[call >= 0]
    most = max(called.size, begun.size) - linked.size
    in_turns = linked.size > 0 and (linked == np.arange(linked.size)).all()
    return call if in_turns and most <= _CUT_OFF else None


def _plain(name: str) -> str:
    """Return the letters and digits of a name: XLA replaces others, as in `<lambda>`."""
    return _LETTERS.sub("", name)


def not_for_data(host: Events, events: Events) -> Events:
    """Return the events that no input pipeline caused: neither its threads nor its functions."""
    return events.where(~is_for_data(host.plane)[events.rows])


@once
def is_for_data(plane: Plane) -> Mask:
    """Return a mask of the events of a plane that an input pipeline caused, shape (n_events,)."""
    host = Events.of(plane)
    is_caused: Mask = _on_data_thread(host)
    process = host.called("ExecutorState::Process")
    runs = processes_for_data(plane)
    elsewhere = distinct_values(process.line[runs & ~is_caused[process.rows]]).tolist()
    for line in (plane.lines[index] for index in elsewhere):
        here = np.flatnonzero((process.rows >= line.first) & (process.rows < line.last))
        for_data = np.r_[runs[here], False]  # the last entry answers for -1
        own = Events(plane, process.rows[here])
        near = Events(plane, np.arange(line.first, line.last))
        is_caused[near.rows] |= for_data[enclosing(own, near)]
    return is_caused


@once
def process_ids(plane: Plane) -> Ints:
    """Return the function run of each `ExecutorState::Process` event, shape (n,)."""
    return Events.of(plane).called("ExecutorState::Process").integers("id")


@once
def data_runs(plane: Plane) -> Ints:
    """
    Return the run of a pipeline's function that each `ExecutorState::Process` event is part of.

    It is an index into the events whose names begin with `DATA_RUNS`, or -1; shape (n,).
    """
    runs = Events.of(plane).named(lambda name: name.startswith(DATA_RUNS)).integers("id")
    return joined(process_ids(plane), runs, np.arange(runs.size))


@once
def processes_for_data(plane: Plane) -> Mask:
    """
    Return a mask of the `ExecutorState::Process` events that run a pipeline's function, shape (n,).
    """
    process = Events.of(plane).called("ExecutorState::Process")
    for_data: Mask = (data_runs(plane) >= 0) | _on_data_thread(process)
    return for_data


def _on_data_thread(events: Events) -> Mask:
    """Return a mask of the events on threads of tf.data, shape (n,)."""
    is_data = np.array([line.name.startswith(_DATA_LINES) for line in events.plane.lines], bool)
    return is_data[events.line]


def xla_executions(host: Events) -> Events:
    """
    Return one event for each execution of an XLA executable, on CPU and GPU.

    TensorFlow 2.18 to 2.20 has none of them on a CPU; there `thunks` show the executions.
    """
    runs = host.named(lambda name: name.endswith("Executable::ExecuteAsyncOnStream"))
    if not len(runs):
        runs = host.named(lambda name: _OF_JAX.fullmatch(name) is not None)
    return outside_waits(host, runs)


def thunks(plane: Events) -> Events:
    """Return the ops of executables that ran on a plane, which name their executable."""
    return without_waits(plane.having("program_id"))


def xla_runs(host: Events) -> Events:
    """Return the executions of XLA executables; where the trace has none of them, their thunks."""
    runs = xla_executions(host)
    return runs if len(runs) else thunks(host)


def compilations(host: Events) -> Events:
    """
    Return one event for each compiled executable, by time.

    Compilations inside autotuning are left out, and that of the program with which tf_profile
    waits.
    """
    compiled = host.named(lambda name: name in CPU_COMPILERS or name.startswith(GPU_COMPILER))
    compiled = compiled.where(parents(compiled) < 0).sorted()
    return compiled.where(
        np.array([WAITS not in name for name in compiled_modules(compiled)], bool)
    )


def compiled_modules(compiled: Events) -> list[str]:
    """Return the module name of each compilation, empty if unknown."""
    stats = compiled.texts("name")
    return [
        name.removeprefix(GPU_COMPILER) if name not in CPU_COMPILERS else stat
        for name, stat in zip(compiled.names, stats, strict=True)
    ]


def without_waits(ops: Events) -> Events:
    """Return ops of devices, or of the host, but those of the program that waits."""
    rows = _waiting(ops.plane)
    return ops.where(~np.isin(ops.rows, rows)) if rows.size else ops


def outside_waits(host: Events, runs: Events) -> Events:
    """Return executions on the host, but those that a call of the program that waits launched."""
    calls = host.named(lambda name: WAITS in name)
    return runs.where(enclosing(calls, runs) < 0) if len(calls) else runs


@once
def _waiting(plane: Plane) -> Ints:
    """
    Return the rows of the ops of the program that waits.

    The profiler keeps a module's name once, among the names of stats, and ops refer to it. So their
    bytes are searched for: a trace may have millions of other ops.
    """
    names = plane.stat_names.items()
    stats = [key_field(key) for key, name in names if name == _MODULE]
    texts = [key_field(key)[1:] for key, name in names if WAITS in name]
    patterns = [stat + _REF_VALUE + text for stat in stats for text in texts]
    if not patterns or not plane.start_ps.size:
        return np.empty(0, np.int64)
    rows = np.unique(np.concatenate([Events.of(plane).with_bytes(one) for one in patterns]))
    modules = Events(plane, rows).texts(_MODULE)
    found: Ints = rows[np.array([WAITS in module for module in modules], bool)]
    return found
