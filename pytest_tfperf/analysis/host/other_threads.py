"""
Find what threads of the user's other than the step's did meanwhile, and leave out what it hides.

A thread that a step starts works for the step. One that lived before may serve others, and a trace
does not tell whose work it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pytest_tfperf.analysis.evidence import Evidence
from pytest_tfperf.analysis.steps.detect import MARKED
from pytest_tfperf.text import and_more
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.function_calls import called_function, eager_calls, eager_types, jax_calls
from pytest_tfperf.trace.xspace import HOST
from pytest_tfperf.values import Source, Value

_HOLD = frozenset(
    {
        *("step_time", "step_time_p90", "step_time_p99", "first_step_time", "throughput"),
        *("epoch_gap", "memory_growth", "python_calls", "batch_padding"),
        *("input_bound", "input_wait", "input_capacity", "input_bound_at_target"),
        *("input_python_stages", "host_overhead", "device_busy", "collective_time", "step_skew"),
        *("retraces", "xla_compiles", "xla_compile_time"),
    }
)
"""Metrics that hold all the same: times with all that ran in them, and what is told by thread."""
_OF_INPUT = frozenset({"input_bound", "input_wait", "input_capacity", "input_bound_at_target"})
_WAIT = "IteratorGetNext"
_OF_FRAMEWORKS = "tf_"
"""Start of the names of the threads of TensorFlow and XLA (tensorflow::Env::StartThread)."""
_TF_CALL = "tf_function_call"
"""The stat of calls of a tf.function."""
_CALLED = (
    "another thread called {} while the steps ran, and the trace does not tell which work is the "
    "step's"
)
_RAN = "another thread ran {} eagerly while the steps ran, and the trace does not tell whose it is"
_FED = (
    "another thread took elements of a dataset while the steps ran, and the trace does not tell "
    "which waits are the step's"
)
_MADE = "another thread traced or compiled {} while a step ran"
_N_NAMED = 3


def elsewhere(evidence: Evidence, events: Events) -> Events:
    """
    Return the events of the host on other threads than the steps', if these lived before.

    Those between steps count too: XLA runs behind the calls. Threads of the frameworks themselves
    work for the step or its input, as where it calls Python back.
    """
    recording = evidence.recording
    if evidence.launched.source != MARKED or not (recording.bare or recording.other_threads):
        return events.where(np.zeros(len(events), bool))
    marks = Events.of(events.plane).having("step_num").having("tfperf")
    lines = events.plane.lines
    of_frameworks = [n for n, line in enumerate(lines) if line.name.startswith(_OF_FRAMEWORKS)]
    return events.where(~np.isin(events.line, [*marks.line.tolist(), *of_frameworks]))


def why_called(evidence: Evidence) -> str | None:
    """Return why the trace's work is not all the step's, or None if only its thread called any."""
    if evidence.trace is None:
        return None
    host = Events.of(evidence.trace.plane(HOST))
    calls = [elsewhere(evidence, each) for each in (jax_calls(host), host.having(_TF_CALL))]
    named = dict.fromkeys(called_function(name) for each in calls for name in each.names)
    return _CALLED.format(and_more(list(named), _N_NAMED)) if named else None


def why_ran_eagerly(evidence: Evidence) -> str | None:
    """Return why eager ops of the trace are not all the step's, or None."""
    if evidence.trace is None:
        return None
    ops = elsewhere(evidence, eager_calls(Events.of(evidence.trace.plane(HOST))))
    named = dict.fromkeys(name for name in eager_types(ops) if name)
    return _RAN.format(and_more(list(named), _N_NAMED)) if named else None


def why_fed(evidence: Evidence) -> str | None:
    """Return why waits for elements in the trace are not all the step's, or None."""
    if evidence.trace is None:
        return None
    host = Events.of(evidence.trace.plane(HOST))
    waits = elsewhere(evidence, host.named(lambda name: name.startswith(_WAIT)))
    return _FED if len(waits) else None


def why_made(evidence: Evidence) -> str | None:
    """Return why traces and compilations are not all the step's, or None."""
    made = evidence.recording.made_elsewhere
    return _MADE.format(and_more(list(made), _N_NAMED)) if made else None


def without_elsewhere(values: Mapping[str, Value], evidence: Evidence) -> dict[str, Value]:
    """Make values unknown that work of other threads is part of."""
    called, made, fed = why_called(evidence), why_made(evidence), why_fed(evidence)
    reasons = {
        **dict.fromkeys(values, called),
        **dict.fromkeys(_HOLD),
        **dict.fromkeys(_OF_INPUT, fed),
        **dict.fromkeys(("retraces", "xla_compiles"), made),
        "eager_ops": called or why_ran_eagerly(evidence),
    }
    found = dict(values)
    for name, value in values.items():
        why, of_thread = reasons[name], (Source.COUNTED, Source.TIMED)
        if why and value.number is not None and value.source not in of_thread:
            found[name] = replace(value, number=None, source=None, why=why, detail={})
    return found
