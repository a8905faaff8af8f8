"""
Find what threads of the user's other than the step's did meanwhile, and leave out what it hides.

A thread that a step starts works for the step. One that lived before may serve others, and a trace
does not tell whose work it does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

    Those between marked steps count too: XLA runs behind the calls. Threads of the frameworks
    themselves work for the step or its input, as where it calls Python back.
    """
    if not len(events) or not (evidence.recording.bare or evidence.recording.other_threads):
        return events.where(np.zeros(len(events), bool))
    own = _threads(evidence, Events.of(events.plane))
    if evidence.launched.source != MARKED:  # the plugin waits at the end of an unmarked trace
        events = events.where(evidence.launched.of(events.start) >= 0)
    lines = events.plane.lines
    of_frameworks = [n for n, line in enumerate(lines) if line.name.startswith(_OF_FRAMEWORKS)]
    return events.where(~np.isin(events.line, own + of_frameworks) & bool(own))


def _threads(evidence: Evidence, host: Events) -> list[int]:
    """
    Return the lines of the threads of the steps, none where the steps are of no thread.

    Steps that are calls of one function may take turns on several. If these calls overlap, their
    work does too, and the steps are those of the thread with most of them.
    """
    steps = evidence.launched
    if steps.source == MARKED or (steps.source == "step_num" and evidence.in_process):
        marks, ours = host.having("step_num"), host.having("step_num").having("tfperf")
        return list((ours if len(ours) else marks).line.tolist())
    function = steps.names[0].rpartition(" ")[0]
    calls = (jax_calls(host), host.having(_TF_CALL))
    made = [one.named(lambda name: called_function(name) == function).sorted() for one in calls]
    own = max(made, key=len)
    if steps.source != "function" or not len(own):
        return []
    if (own.start[1:] >= np.maximum.accumulate(own.end)[:-1]).all():
        return list(own.line.tolist())
    return [int(np.bincount(own.line).argmax())]


def _named(evidence: Evidence, *picked: Events, name: Callable[[Events], list[str]]) -> str:
    """Return the names of those of the events that lie elsewhere, each once; "" for none."""
    found = dict.fromkeys(one for events in picked for one in name(elsewhere(evidence, events)))
    return and_more([one for one in found if one], _N_NAMED)


def without_elsewhere(values: Mapping[str, Value], evidence: Evidence) -> dict[str, Value]:
    """Make values unknown that work of other threads is part of."""
    host = Events.of(evidence.trace.plane(HOST) if evidence.trace else None)
    functions = _named(evidence, jax_calls(host), host.having(_TF_CALL), name=_functions)
    ops = _named(evidence, eager_calls(host), name=eager_types)
    waits = _named(evidence, host.named(lambda name: name.startswith(_WAIT)), name=_functions)
    made = and_more(list(evidence.recording.made_elsewhere), _N_NAMED)
    called = functions and _CALLED.format(functions)
    reasons = {
        **dict.fromkeys(values, called),
        **dict.fromkeys(_HOLD, ""),
        **dict.fromkeys(_OF_INPUT, waits and _FED),
        **dict.fromkeys(("retraces", "xla_compiles"), made and _MADE.format(made)),
        "eager_ops": called or (ops and _RAN.format(ops)),
    }
    found = dict(values)
    for name, value in values.items():
        why, of_thread = reasons[name], (Source.COUNTED, Source.TIMED)
        if why and value.number is not None and value.source not in of_thread:
            found[name] = replace(value, number=None, source=None, why=why, detail={})
    return found


def _functions(calls: Events) -> list[str]:
    return [called_function(name) for name in calls.names]
