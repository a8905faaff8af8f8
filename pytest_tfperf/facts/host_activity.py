"""
Find activity on the host's threads: model ops, the TensorFlow runtime, eager ops, separate from the
input pipeline.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.function_traces import FunctionTrace
from pytest_tfperf.op_types import waits_for_others
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.devices import tpus
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.function_calls import (
    EAGER,
    are_functions,
    called_function,
    eager_calls,
    eager_types,
    jax_calls,
    shows_jax_calls,
)
from pytest_tfperf.trace.intervals import Spans, merge
from pytest_tfperf.trace.nesting import enclosing
from pytest_tfperf.trace.tf_data import not_for_data, processes_for_data
from pytest_tfperf.trace.xla_events import COMPILES_FOR_JAX, compilations, xla_runs
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
LOWERS = "lower_sharding_computation"
"""Name of the events in which JAX lowers a traced function."""


@dataclass(frozen=True, slots=True, eq=False)
class Activity:
    """Merged spans of one host."""

    model: Spans
    """Ops of the model and XLA executions."""
    runtime: Spans
    """Calls of TensorFlow's runtime."""
    compile: Spans
    """Compilations of XLA and of graphs."""


def find_activity(trace: Trace) -> Activity:
    """
    Find the activity of the model's ops, the runtime and the compilers, without functions that
    tf.data runs.
    """
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
    """
    Return whether the trace has events of TensorFlow's runtime; traces of JAX or of a device alone
    have none.
    """
    host = trace.plane(HOST)
    return host is not None and not _SHOWS_RUNTIME.isdisjoint(host.names)


def runs_ops(trace: Trace, steps: Steps) -> tuple[bool, bool]:
    """
    Return whether the steps ran any op of TensorFlow, and whether they ran one outside their input.

    The synchronisation with which tf_profile ends a step does not count.
    """
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
    """
    Return whether the steps ran any op of TensorFlow, and whether they ran one outside their input.

    Args:
        trace: The trace.
        steps: Its steps.
        passed_over: Starts of the types of eager ops that do not count.
    """
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


def traced_late(trace: Trace, steps: Steps) -> list[FunctionTrace]:
    """
    Return every tf.function trace in any step of the trace but its first.
    """
    host = Events.of(trace.plane(HOST))
    building = host.called("tf.function-graph_building")
    building = building.where(steps.of(building.start) > 0)
    calls = host.having("tf_function_call")
    caller, names = enclosing(calls, building), calls.names
    named = [names[place] if place >= 0 else "function" for place in caller.tolist()]
    return [
        FunctionTrace(name, step)
        for name, step in zip(named, steps.of(building.start).tolist(), strict=True)
    ]


def traced_again(trace: Trace) -> list[FunctionTrace]:
    """
    Return every call that traced its tf.function, except its first call, by its number.
    """
    calls, number = _calls(Events.of(trace.plane(HOST)))
    modes = calls.texts("tf_function_call")
    return [
        FunctionTrace(name, n)
        for name, n, mode in zip(calls.names, number, modes, strict=True)
        if n and mode.startswith("traced")
    ]


def jax_retraces(trace: Trace, steps: Steps, hidden: bool) -> tuple[FunctionTrace, ...] | None:
    """
    Return every call of JAX that was traced in a step after the first.

    The result is None if no event tells what JAX lowered (jax/_src/interpreters/pxla.py), or which
    call did, and it may have.

    Args:
        trace: The trace.
        steps: Its steps.
        hidden: True if the trace may not show compilations.
    """
    host = Events.of(trace.plane(HOST))
    calls, lowered = jax_calls(host).sorted(), host.called(LOWERS)
    if not len(lowered) and (hidden or len(compilations(host))):
        return None
    if len(lowered) and not shows_jax_calls(host):
        return None
    traced = set(enclosing(calls, lowered).tolist())
    step_of = steps.of(calls.start).tolist()
    return tuple(
        FunctionTrace(called_function(event), step)
        for place, (event, step) in enumerate(zip(calls.names, step_of, strict=True))
        if place in traced and step > 0
    )


def compiled_again(trace: Trace) -> list[str]:
    """
    Return the functions in whose second or later call an executable was compiled.

    A compilation outside of calls has the name of its module.
    """
    host = Events.of(trace.plane(HOST))
    calls, number = _calls(host)
    compiled = compilations(host)
    caller, names = enclosing(calls, compiled), calls.names
    known = [names[place] if place >= 0 else "executable" for place in caller.tolist()]
    return [
        name
        for name, place in zip(known, caller.tolist(), strict=True)
        if place < 0 or number[place]
    ]


def _calls(host: Events) -> tuple[Events, list[int]]:
    """
    Return the calls of tf.functions by time, and the number of each among its function's calls,
    from 0.
    """
    calls = host.having("tf_function_call").sorted()
    seen: Counter[str] = Counter()
    number = []
    for name in calls.names:
        number.append(seen[name])
        seen[name] += 1
    return calls, number


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
    Count the ops run eagerly in each step, shape (n_steps,), and by type.

    Constants do not count. Neither do the ops with which a loop fetches its elements: everything in
    `next(iterator)`, and Keras' optional around it.
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
