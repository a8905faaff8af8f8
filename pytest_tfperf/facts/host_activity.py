"""
Activity on the host's threads: ops of the model, eager ops, TensorFlow's runtime, frameworks.

It is separate from the input pipeline. Without evidence that a trace would show an activity, a
count of zero means nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.errors import TraceError
from pytest_tfperf.facts.steps import MARKED, Steps, find_steps, only_own
from pytest_tfperf.op_types import waits_for_others
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.text import plural
from pytest_tfperf.trace.devices import accelerators, tpus
from pytest_tfperf.trace.events import Events, enclosing
from pytest_tfperf.trace.hlo_modules import live_modules
from pytest_tfperf.trace.host_events import (
    COMPILES_FOR_JAX,
    EAGER,
    are_functions,
    called_function,
    compilations,
    eager_calls,
    eager_types,
    jax_calls,
    not_for_data,
    processes_for_data,
    xla_runs,
)
from pytest_tfperf.trace.intervals import Spans, merge
from pytest_tfperf.trace.xspace import HOST, Trace
from pytest_tfperf.values import FETCH, FETCH_PYTHON

# `node name:Op type`, the grammar of XProf's ParseTfOpFullname (xla/tsl/profiler/convert or
# utils/tf_op_utils.cc); a callback of XLA's streams on GPUs has a name of this form
_OP = re.compile(r"(?!ThenExecuteCallback:)[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*:([A-Z_][a-zA-Z0-9_]*)\Z")
_RUNTIME = frozenset(
    {
        EAGER,
        "EagerKernelExecute",
        "FunctionRun",
        "SessionRun",
        "RunGraph",
        "KernelAndDeviceFunc::Run",
        "tf.function-graph_building",
    }
)
_SHOWS_RUNTIME = _RUNTIME | {"ExecutorState::Process"}
_CALLS = ("FunctionRun", "SessionRun", "RunGraph", "tf.function-graph_building")
_FETCHING = ("IteratorGetNext", "OptionalHasValue", "OptionalGetValue", "_EagerConst", "SyncDevice")
JAX, TENSORFLOW, PYTORCH = "JAX", "TensorFlow", "PyTorch"
NO_RUNTIME = "the trace has no event of TensorFlow's runtime, which would show it"
_JAX = ("PjitFunction(", "jit_", "$pjit.py")
"""Starts of names of events of JAX: its calls, its programs, and its Python code."""
# TensorFlow 2.18 to 2.22: tensorflow/core/common_runtime/eager/execute.cc, and
# tensorflow/core/distributed_runtime/eager/eager_service_impl.cc
_REQUEST, _SERVED = "EagerExecute", "EagerService:Enqueue"
_LOCAL = ("EagerLocalExecute", "EagerKernelExecute")  # starts of names of what runs in a request
TF_CALL = "tf_function_call"
"""The stat of calls of a tf.function."""


@dataclass(frozen=True, slots=True, eq=False)
class Activity:
    """Merged spans of one host."""

    model: Spans
    """With XLA executions."""
    runtime: Spans
    compile: Spans
    """By XLA, and of graphs."""


def find_activity(trace: Trace) -> Activity:
    """Find the activity of model ops, runtime and compilers, without functions of tf.data."""
    host = Events.of(trace.plane(HOST))
    process = model_processes(trace)
    runtime = not_for_data(host, host.named(lambda name: name in _RUNTIME))
    executions = xla_runs(host)
    return Activity(
        model=merge(model_ops(host).spans, executions.spans),
        runtime=merge(runtime.spans, process.spans, executions.spans),
        compile=merge(
            compilations(host).spans,
            host.called("tf.function-graph_building", COMPILES_FOR_JAX).spans,
        ),
    )


def model_processes(trace: Trace) -> Events:
    """Return the executor's work on the model's functions."""
    host = Events.of(trace.plane(HOST))
    return host.called("ExecutorState::Process").where(~processes_for_data(host.plane))


def shows_host(trace: Trace) -> bool:
    """Return whether the trace has events of the host."""
    host = trace.plane(HOST)
    return host is not None and host.start_ps.size > 0


def shows_runtime(trace: Trace) -> bool:
    """Return whether the trace has TensorFlow's runtime: those of JAX or a device have none."""
    host = trace.plane(HOST)
    return host is not None and not _SHOWS_RUNTIME.isdisjoint(host.names)


def runs_ops(trace: Trace, steps: Steps) -> tuple[bool, bool]:
    """Return whether steps ran an op of TensorFlow but tf_profile's sync, and a non-input op."""
    return _ran(trace, steps, ("SyncDevice",))


def computes(trace: Trace, steps: Steps) -> bool:
    """Return whether the steps ran an op of TensorFlow that neither makes nor fetches input."""
    return _ran(trace, steps, _FETCHING)[1]


def runs_jax(trace: Trace, steps: Steps) -> bool:
    """Return whether the steps called a program of JAX, or ran one on any device."""
    host = Events.of(trace.plane(HOST))
    groups = [jax_calls(host), xla_runs(host)]
    groups += [Events.of(plane).on_lines("XLA Modules") for plane in tpus(trace)]
    return any((steps.of(events.start) >= 0).any() for events in groups)


def _ran(trace: Trace, steps: Steps, passed_over: tuple[str, ...]) -> tuple[bool, bool]:
    """Return whether the steps ran any op of TensorFlow, and one outside their input."""
    host = Events.of(trace.plane(HOST))
    eager = eager_calls(host)
    counted = [not name.startswith(passed_over) for name in eager_types(eager)]
    groups = (
        eager.where(np.array(counted, bool)),
        host.called(*_CALLS, "ExecutorState::Process"),
        host.named(lambda name: op_type(name) is not None),
        xla_runs(host),
    )
    within = [events.where(steps.of(events.start) >= 0) for events in groups]
    own = [not_for_data(host, events) for events in within]
    fetches = host.called(FETCH, FETCH_PYTHON)
    own = [events.where(enclosing(fetches, events) < 0) for events in own]
    return any(map(len, within)), any(map(len, own))


def launches(trace: Trace) -> Spans:
    """Return merged spans of kernel and copy launches: driver calls with a `correlation_id`."""
    host = Events.of(trace.plane(HOST))
    return merge(host.having("correlation_id").spans)


def op_type(name: str) -> str | None:
    """Return the type in an op event's name, or None for another event."""
    match = _OP.match(name)
    return match[1] if match else None


def eager_executions(host: Events) -> Events:
    """Return the ops run eagerly, without calls of functions."""
    events = eager_calls(host)
    return events.where(~are_functions(events))


def eager_ops(trace: Trace, steps: Steps) -> tuple[Ints, Counter[str]]:
    """
    Count the eager ops of each step, shape (n_steps,), and by type, without constants and the ops
    of `next(iterator)` and of Keras' optional around it.
    """
    host = Events.of(trace.plane(HOST))
    eager = not_for_data(host, eager_executions(host))
    eager = eager.where(enclosing(host.called(FETCH, FETCH_PYTHON), eager) < 0)
    eager = eager.where(steps.of(eager.start) >= 0)
    types = eager_types(eager)
    counts = np.array([not name.startswith(_FETCHING) for name in types], bool)
    names = Counter(name for name, counted in zip(types, counts, strict=True) if counted)
    return np.bincount(steps.of(eager.where(counts).start), minlength=len(steps)), names


def model_ops(host: Events) -> Events:
    """Return the ops of the model that the executor ran, without those that wait for others."""
    ops = host.named(
        lambda name: (
            (kind := op_type(name)) is not None
            and not waits_for_others(kind)
            and "Iterator::" not in name
        )
    )
    return not_for_data(host, ops)


def framework(trace: Trace) -> str:
    """Return the framework whose steps a trace shows; TensorFlow where nothing says JAX."""
    host = Events.of(trace.plane(HOST))
    if shows_runtime(trace):
        return TENSORFLOW
    programs = [Events.of(plane).on_lines("XLA Modules") for plane in tpus(trace)]
    named = [events.named(lambda name: name.startswith(_JAX)) for events in (host, *programs)]
    return JAX if any(map(len, named)) else TENSORFLOW


def shows_eager(trace: Trace) -> bool:
    """Return whether the trace has eager events, which all tell their op or are functions."""
    calls = eager_calls(Events.of(trace.plane(HOST)))
    told = calls.integers("is_func", -1) >= 0
    return len(calls) > 0 and bool((told | np.array(eager_types(calls), bool)).all())


def why_executions_hidden(trace: Trace, in_process: bool) -> str | None:
    """
    Return why a trace without executions in its steps may have lost them, as on a CPU before
    TensorFlow 2.18, or None if it shows all; `in_process` if this process made it.
    """
    programs = [Events.of(plane).on_lines("XLA Modules") for plane in tpus(trace)]
    if any(map(len, programs)) or len(xla_runs(Events.of(trace.plane(HOST)))):
        return None
    if not shows_host(trace):
        return "the trace has no event of the host"
    if not shows_runtime(trace):
        return f"the trace has no event of an XLA execution, as {framework(trace)} may leave out"
    if not in_process and (ops := _xla_ops(trace)):
        return f"the trace has no event of an XLA execution, and {ops[0]} ran"
    if not in_process and (n := len(live_modules(trace))):
        held = plural(n, "loaded executable")
        on_cpu = "TensorFlow before 2.18 marks no execution on a CPU"
        return (
            f"the trace has no event of an XLA execution and holds {held}: "
            f"{'nothing says that one ran' if accelerators(trace) else on_cpu}"
        )
    return None


def _xla_ops(trace: Trace) -> list[str]:
    """Return the types of ops in a trace that run executables (tensorflow/compiler/jit/ops)."""
    host = trace.plane(HOST)
    types = {op_type(name) or "" for name in (host.names if host else ())}
    return sorted(types & {"_XlaRun", "XlaLaunch", "XlaLaunchV2"})


def why_compilations_hidden(trace: Trace, in_process: bool) -> str | None:
    """Return why a trace may not show what XLA compiled (for TPUs, elsewhere), or None."""
    if not shows_host(trace):
        return "the trace has no event of the host, which would show it"
    if shows_runtime(trace) or len(xla_runs(Events.of(trace.plane(HOST)))):
        return why_executions_hidden(trace, in_process)
    return "the trace has no event of XLA on the host, which would show it"


_COMPUTES = {"TensorFlow": computes, JAX: runs_jax}


def frameworks_of(
    traces: Mapping[str, Trace],
    untraced: tuple[str, ...] = (),
    own: Mapping[str, bool] | None = None,
) -> tuple[str, ...]:
    """
    Return the frameworks that computed in the steps, that with most in its trace first, else one;
    fetching an element is no computation, since JAX may train on a tf.data.Dataset.
    """
    if len(traces) == 1 and not untraced:
        return tuple(traces)
    ran = tuple(name for name, trace in traces.items() if _used(name, trace, only_own(own)))
    return ran or untraced[:1] or tuple(traces)[:1]


def _used(name: str, trace: Trace, own: Collection[str]) -> bool:
    try:
        return _COMPUTES[name](trace, find_steps(trace, own))
    except TraceError:  # it has no step
        return False


def remote_functions(trace: Trace, steps: Steps) -> Counter[str]:
    """
    Count the calls of functions that other processes ran for the steps, such as workers of
    `tf.distribute.ParameterServerStrategy`: requests without an execution in this process.
    """
    host = Events.of(trace.plane(HOST))
    requests = host.called(_REQUEST)
    requests = requests.where((requests.integers("is_func") > 0) & (steps.of(requests.start) >= 0))
    local = enclosing(requests, host.named(lambda name: name.startswith(_LOCAL)))
    runs_here = np.isin(np.arange(len(requests)), local)
    served = runs_here & (enclosing(host.called(_SERVED), requests) >= 0)
    asked, answered = (
        Counter(name for name in events.texts("eager_op") if name)
        for events in (requests.where(~runs_here), requests.where(served))
    )
    return asked - answered


def threads_of(steps: Steps, host: Events, in_process: bool) -> list[int]:
    """
    Return the lines of the steps' threads, none if they have none, and one if calls of a function
    overlap: that with most of them; `in_process` if this process made the trace.
    """
    if steps.source == MARKED or (steps.source == "step_num" and in_process):
        marks, ours = host.having("step_num"), host.having("step_num").having("tfperf")
        return list((ours if len(ours) else marks).line.tolist())
    function = steps.names[0].rpartition(" ")[0]
    calls = (jax_calls(host), host.having(TF_CALL))
    made = [one.named(lambda name: called_function(name) == function).sorted() for one in calls]
    own = max(made, key=len)
    if steps.source != "function" or not len(own):
        return []
    if (own.start[1:] >= np.maximum.accumulate(own.end)[:-1]).all():
        return list(own.line.tolist())
    return [int(np.bincount(own.line).argmax())]
