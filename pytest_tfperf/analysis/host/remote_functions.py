"""
Find the functions that the steps let other processes run, and leave out what then is not known.

These processes are workers of `tf.distribute.ParameterServerStrategy`, for example. Their work is
in no trace of this one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from pytest_tfperf.analysis.evidence import Evidence
from pytest_tfperf.analysis.steps.detect import Steps
from pytest_tfperf.recording import UNSEEN
from pytest_tfperf.text import and_more
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.nesting import enclosing
from pytest_tfperf.trace.xspace import HOST, Trace
from pytest_tfperf.values import Value

# TensorFlow 2.18 to 2.22: tensorflow/core/common_runtime/eager/execute.cc, and
# tensorflow/core/distributed_runtime/eager/eager_service_impl.cc
_REQUEST, _SERVED = "EagerExecute", "EagerService:Enqueue"
_LOCAL = ("EagerLocalExecute", "EagerKernelExecute")  # starts of names of what runs in a request
_NAME = re.compile(r"__inference_(.+)_\d+\Z")
_INPUT = frozenset(
    {
        "input_bound",
        "input_wait",
        "input_capacity",
        "input_bound_at_target",
        "input_python_stages",
    }
)
"""Metrics of a pipeline, which is the step's own if the step was given data."""
_HOLD = frozenset(
    {
        *("step_time", "step_time_p90", "step_time_p99", "first_step_time", "throughput"),
        *("epoch_gap", "memory_growth", "batch_padding", "python_calls", "retraces", "eager_ops"),
        *("graph_ops", "graph_reduction", "flops", "half_precision", "op_guide_findings"),
        *("padding_overhead", "mxu_padding_overhead"),
    }
)
"""Metrics of what Python does here, and of the functions that it calls, wherever they run."""
_WHY = (
    "other processes ran functions of the step ({}), and the trace shows the work of this one only"
)
_NOTE = (
    "{}: trace them too (tfperf capture HOST:PORT of their profiler servers), or profile the step "
    "where it runs"
)
_N_NAMED = 3


def remote_functions(trace: Trace, steps: Steps) -> Counter[str]:
    """
    Count the calls of functions in the steps that other processes ran, by name.

    A request to a server has no local execution in it. A server of the same process, as in tests,
    shows the execution in an event of its own.
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


def why_remote(evidence: Evidence) -> str | None:
    """Return why the trace lacks work of the steps, or None if this process ran all functions."""
    if evidence.trace is None:
        return None
    found = remote_functions(evidence.trace, evidence.launched)
    named = Counter(_NAME.sub(r"\1", name) for name in found.elements())
    return _WHY.format(and_more(list(named), _N_NAMED)) if named else None


def remote_notes(evidence: Evidence) -> tuple[str, ...]:
    """Return a note if other processes ran functions of the steps."""
    why = why_remote(evidence)
    return (_NOTE.format(why),) if why else ()


def without_remote(values: Mapping[str, Value], evidence: Evidence) -> dict[str, Value]:
    """Make values unknown that hold for this process only, if others ran functions of the steps."""
    why = why_remote(evidence)
    if why is None:
        return dict(values)
    recording = evidence.recording
    has_data = not recording.bare and recording.pipeline != UNSEEN
    held = _HOLD | _INPUT if has_data else _HOLD
    return {
        name: replace(value, number=None, source=None, why=why, detail={})
        if name not in held
        else replace(value, detail=_of_all(value))
        for name, value in values.items()
    }


def _of_all(value: Value) -> dict[str, object]:
    """Return the detail of a value without shares of the ops' time, which is that of all ops."""
    return {key: part for key, part in value.detail.items() if key != "time_share"}
