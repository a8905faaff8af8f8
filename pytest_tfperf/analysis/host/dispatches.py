"""Calls of JAX functions from Python in the steps, and those outside the user's jax.jit."""

from __future__ import annotations

from collections import Counter

import numpy as np

from pytest_tfperf.analysis.compiler_causes import dispatch_cause
from pytest_tfperf.analysis.evidence import Evidence
from pytest_tfperf.analysis.host.jax_transfers import EXPLICIT_PUT
from pytest_tfperf.analysis.xla.counts import counted_by, per_step
from pytest_tfperf.text import and_more
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.function_calls import (
    called_function,
    executing_calls,
    jax_executions,
    shows_jax_calls,
)
from pytest_tfperf.trace.nesting import enclosing
from pytest_tfperf.trace.xspace import HOST
from pytest_tfperf.values import FETCH, FETCH_PYTHON, Value

_METRIC = "eager_ops"
_NOT_IN_PROCESS = "a trace does not tell JAX's own functions from the user's; pytest does"
_NO_CALLS = "the trace has no event of JAX's calls and executions, which would show them"


def jax_dispatches(evidence: Evidence) -> Value:
    """
    Return eager_ops of a step of JAX: calls of functions that JAX itself compiles.

    JAX runs each op outside `jax.jit` as a small compiled function, whose call has an event of the
    same kind as that of a user's function. The name tells them apart. A call that puts an array on
    a device is no op: `host_device_copies` counts it.
    """
    own = evidence.recording.own_functions
    if own is None or evidence.trace is None:
        return Value.unknown(_METRIC, _NOT_IN_PROCESS)
    own = {name: is_users_too for name, is_users_too in own.items() if name != EXPLICIT_PUT}
    host = Events.of(evidence.trace.plane(HOST))
    if not shows_jax_calls(host) or not len(jax_executions(host)):
        return Value.unknown(_METRIC, _NO_CALLS)
    calls = executing_calls(host)
    calls = calls.where(enclosing(host.called(FETCH, FETCH_PYTHON), calls) < 0)
    calls = calls.where(evidence.launched.of(calls.start) >= 0)
    names = [called_function(name) for name in calls.names]
    if shared := sorted({name for name in names if own.get(name)}):
        return Value.unknown(
            _METRIC,
            f"JAX and the step both compile a function named {and_more(shared, 3)}, and a trace "
            "tells them apart by name only; rename yours",
        )
    counted = np.array([name in own for name in names], bool)
    step = evidence.launched.of(calls.where(counted).start)
    counts = np.bincount(step, minlength=len(evidence.launched))
    in_keras = evidence.launched.in_keras
    called = Counter(name for name in names if name in own)
    detail = dispatch_cause(called, in_keras, any(name not in own for name in names))
    detail |= counted_by(called)
    return per_step(_METRIC, counts, evidence.launched.sizes, **(detail if counts.any() else {}))
