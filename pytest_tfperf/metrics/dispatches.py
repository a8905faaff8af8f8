"""Calls of JAX functions from Python in the steps, and those outside the user's jax.jit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from pytest_tfperf.advice.step_remedies import (
    ARRAYS,
    dispatch_cause,
    eager_remedies,
    lines_of,
    op_samples,
)
from pytest_tfperf.facts.host_activity import JAX
from pytest_tfperf.metrics.copies import EXPLICIT_PUT, reads_in_a_step
from pytest_tfperf.metrics.counts import counted_by, per_step
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.recording import PythonFunction
from pytest_tfperf.text import and_more
from pytest_tfperf.trace.events import Events, enclosing
from pytest_tfperf.trace.host_events import (
    called_function,
    executing_calls,
    jax_executions,
    shows_jax_calls,
)
from pytest_tfperf.trace.xspace import HOST
from pytest_tfperf.values import FETCH, FETCH_PYTHON, Unknown, Value

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
    called = Counter(name for name in names if name in own)
    detail = _cause(evidence, called, n_calls=len(names) - called.total()) if called else {}
    detail |= counted_by(called)
    return per_step(_METRIC, counts, evidence.launched.sizes, **(detail if counts.any() else {}))


def _cause(evidence: Evidence, called: Counter[str], n_calls: int) -> dict[str, Any]:
    """Return where JAX's own functions are called, and what to try."""
    recording, n_steps = evidence.recording, evidence.launched.n_steps
    remedy = "wrap the step in jax.jit: it calls no such function"
    if n_calls:
        remedy = "move them into the jax.jit function that the step calls"
    if evidence.launched.in_keras:
        remedy = "compile the model with jit_compile=True, and run_eagerly=False"
    calls = recording.python_calls
    functions = () if isinstance(calls, Unknown) else calls.functions
    arrays_s = sum(one.self_s for one in functions if ARRAYS.match(one.name))
    makes_arrays = arrays_s > sum(one.self_s for one in functions) / 2
    remedies = eager_remedies(called, n_steps, remedy, reads_in_a_step(evidence), makes_arrays)
    samples = op_samples(recording.stacks, called.total() / n_steps, n_calls / n_steps, JAX)
    if makes_arrays:
        samples += [one for one in recording.stacks if ARRAYS.match(one.called)]
    lines = lines_of(samples)
    callers = f", called{lines}" if lines else _users(functions)
    return dispatch_cause(called, n_steps, remedies, callers)


def _users(functions: Sequence[PythonFunction]) -> str:
    """Return the user's functions in which a step's Python takes its time, if it calls some."""
    own = sorted((one for one in functions if one.place), key=lambda one: -one.self_s)
    least_s = sum(one.self_s for one in own) / 4
    named = [
        f"{one.name.rpartition(':')[2]} at {one.place}" for one in own if one.self_s >= least_s
    ]
    return f"; the step runs {and_more(named, 3)}" if named else ""
