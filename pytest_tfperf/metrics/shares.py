"""Measure how much of the steps waits for input, runs Python, and keeps devices busy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pytest_tfperf.advice.step_remedies import overhead_remedy
from pytest_tfperf.advice.thresholds import THRESHOLDS
from pytest_tfperf.facts.device_ops import NO_CATEGORY
from pytest_tfperf.facts.host_activity import JAX, framework, op_type, shows_host, shows_runtime
from pytest_tfperf.facts.op_times import OpTime
from pytest_tfperf.facts.parts import NOT_EXECUTING, DeviceParts
from pytest_tfperf.facts.waits import DRAINED, elements_taken, loops_in_graph, why_waits_hidden
from pytest_tfperf.metrics.calls import python_cause
from pytest_tfperf.metrics.copies import copies_by_host, copies_for_input
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.metrics.pipeline import input_capacity, input_cause, with_keras_source
from pytest_tfperf.metrics.timing import mean_step
from pytest_tfperf.op_types import COLLECTIVES
from pytest_tfperf.quantities import SHARE, format_quantity
from pytest_tfperf.recording import UNSEEN, Fetches, Recording
from pytest_tfperf.text import plural
from pytest_tfperf.trace.devices import GPU, TPU, accelerators
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.intervals import covered
from pytest_tfperf.trace.xspace import HOST, Trace
from pytest_tfperf.values import Source, Value

_OF_DEVICES = ("device_busy", "device_time", "collective_time")
_NO_DEVICE = (
    "the trace has no device plane: it is of a CPU, or the profiler had no access to the "
    "accelerator"
)
_NO_DEVICE_WORK = (
    "the trace has planes of devices, and no event of what they ran: the steps did not run there, "
    "or the profiler had no access to them"
)
_IN_GRAPH = (
    "a tf.function loops over a dataset (for … in dataset), and the trace does not tell waiting "
    "for its elements from work; loop in Python, or over iter(dataset)"
)
_NO_WORK = (
    "the trace lacks events of the host, or of TensorFlow's runtime and any accelerator, so idle "
    "time cannot be told from work"
)
_NO_WORK_OF_JAX = (
    "the trace has no event of an accelerator, and what JAX runs on a CPU does not tell idle time "
    "from work"
)
_INPUT_BOUND_MATTERS = 0.10
"""Share of waiting below which an unsettled buffer changes step_time less than noise does."""
_MORE_THAN_NEEDED = 1.2
"""Buffers are given a fifth more steps to drain than they should take."""
_WAITS_ANYWAY = 0.5
"""Share of waits from which that of the first batch of an epoch adds nothing to know."""
_NEARLY_A_STEP = 0.9
"""Seconds of an element ÷ those of a step from which a step may wait for it."""
_NAMED = 3  # ops that take most of device_time
_LONG_EPOCH = 1_000  # steps, over which a wait for the first batch is spread
_NO_DATA_OF_JAX = (
    "the steps were given no data, and JAX's trace shows no input pipeline; pass the data, and the "
    "time of next() counts: tf_profile(step, data) or tf_profile.steps(data)"
)

_OVERHEAD = (
    "Python code in the step or its loop, with neither TensorFlow nor input active",
    "Python code or JAX's dispatch, with no device active",
)
"""The place of host_overhead, of TensorFlow and of JAX."""


def analyse(evidence: Evidence) -> Findings:
    """Find how much of the steps waits for input, runs Python and keeps devices busy."""
    trace = evidence.trace
    if trace is None:
        return evidence.untraced("input_bound", "input_wait", "host_overhead", *_OF_DEVICES)
    values = host_values(evidence, trace)
    wait = input_wait(values["input_bound"], mean_step(evidence.recording))
    device = _device_values(evidence, trace)
    notes = _starts_no_epoch(evidence, values["input_bound"])
    waits = {"input_bound": values["input_bound"], "input_wait": wait}
    waits = {name: value.noted(notes) for name, value in waits.items()}
    return Findings(values={**values, **waits, **device})


def _starts_no_epoch(evidence: Evidence, bound: Value) -> tuple[str, ...]:
    """Return a note if the steps of input_bound are all within one epoch, and none is its first."""
    recording = evidence.recording
    epoch, in_trace = recording.epoch_calls, bound.source is Source.TRACE
    starts = evidence.steps.n_epochs > 1 if in_trace else bool(recording.epoch_starts)
    if bound.number is None or epoch is None or epoch > _LONG_EPOCH or starts:
        return ()
    if bound.number >= _WAITS_ANYWAY:
        return ()
    n_steps = len(evidence.steps) if in_trace else len(recording.step_seconds)
    length = f" (of {epoch})" if epoch else ""
    return (
        f"input_bound is of {n_steps} steps, none of which begins an epoch{length}: the wait for "
        "its first batch is not in it",
    )


def _awaiting_share(ops: Sequence[OpTime]) -> float | None:
    """Return the share of the ops' time in which asynchronous work is awaited, None without ops."""
    total = sum(op.self_s for op in ops)
    awaiting = sum(op.self_s for op in ops if op.kind.endswith("-done"))
    return awaiting / total if total > 0 else None


def waiting_share(evidence: Evidence) -> tuple[float, float, Source]:
    """
    Return the share of the steps that waits for input, the share observed, and the first's origin.
    It is corrected where full buffers hid waits; those that ran empty while timed, or could not
    feed the steps before, drain in the trace alone, since the profiler slows the pipeline down.
    """
    drain, timed, recording = evidence.drain, evidence.timed_waits, evidence.recording
    observed, source = (
        (timed.share, Source.TIMED) if timed else (evidence.breakdown.share("input"), Source.TRACE)
    )
    settled = timed and recording.settled and drain.capacity > 0
    in_trace_alone = settled or ran_empty(evidence)
    if drain.while_timed or (drain.kept < DRAINED and not in_trace_alone):
        return drain.corrected(observed), observed, Source.CORRECTED
    return observed, observed, source


def ran_empty(evidence: Evidence) -> bool:
    """Return whether buffers ran empty while timed; a py_function delays `next()` by 0.3 ms too."""
    timed = evidence.timed_waits
    return timed is not None and timed.emptied and not evidence.drain.held


def settling_steps(
    trace: Trace,
    steps_before: int,
    fetches: Fetches | None = None,
    input_trace: Trace | None = None,
) -> int:
    """
    Return how many more steps a window needs until its buffers hide no slower pipeline, 0 if none.
    Those are their capacity ÷ the share that would wait. Timed fetches tell that better than the
    trace, where the profiler slows the pipeline down; a second half that waits proves the first
    enough. Half a trace of waits needs both windows' steps, and buffers that drained while timed
    need as many again.
    """
    evidence = Evidence(
        Recording(
            name="",
            trace=None,
            workload={},
            framework=framework(trace),
            fetches=fetches,
            settled=False,
        ),
        trace,
        input_trace=input_trace,
    )
    drain, timed = evidence.drain, evidence.timed_waits
    share, *_ = waiting_share(evidence)
    needed = drain.capacity / share if share > _INPUT_BOUND_MATTERS else 0.0
    if timed is None:
        stationary = drain.stationary() and needed <= steps_before
    elif drain.buffered and fetches and ran_empty(evidence):
        half = len(fetches.next_s) / 2
        stationary = not timed.draining(drain.capacity / half)
        needed = max(needed, steps_before + half)
    else:
        in_trace = max(drain.halves)
        if in_trace > _INPUT_BOUND_MATTERS and fetches:
            n_steps = len(fetches.next_s) + len(evidence.steps)
            needed = max(needed, min(drain.capacity / in_trace, n_steps))
        stationary = needed <= steps_before and not drain.while_timed
    return 0 if stationary else int(np.ceil(_MORE_THAN_NEEDED * needed))


def host_values(evidence: Evidence, trace: Trace) -> dict[str, Value]:
    """Return input_bound and host_overhead."""
    return {
        "input_bound": _input_bound(evidence, trace),
        "host_overhead": _host_overhead(evidence, trace),
    }


def _input_bound(evidence: Evidence, trace: Trace) -> Value:
    """Return input_bound where waits show; a loop of tf_profile without data waits for none."""
    drain, recording = evidence.drain, evidence.recording
    if loops_in_graph(trace):
        return Value.unknown("input_bound", _IN_GRAPH)
    driven = not recording.bare and shows_runtime(trace)
    if why := why_waits_hidden(trace, has_data=not driven or recording.pipeline != UNSEEN):
        hidden_by_jax = evidence.framework == JAX and not (
            shows_runtime(trace) or accelerators(trace)
        )
        no_data = hidden_by_jax and not recording.bare and recording.pipeline == UNSEEN
        return Value.unknown("input_bound", _NO_DATA_OF_JAX if no_data else why)
    share, observed, source = waiting_share(evidence)
    detail: dict[str, Any] = {"observed": observed, "halves": list(drain.halves)}
    if share > 0:
        cause = copies_for_input(evidence) or input_cause(evidence, share)
        detail |= with_keras_source(cause, recording.pipeline)
    if source is Source.TRACE:
        detail |= _bounds(evidence, share)
    if source is Source.CORRECTED:
        detail["corrected"] = (
            f"buffers gave {format_quantity(1 - drain.kept, SHARE)} of the elements while the "
            "steps were traced; without them the steps wait longer than the "
            f"{format_quantity(observed, SHARE)} seen"
        )
    return Value.of("input_bound", share, source, **detail)


def _bounds(evidence: Evidence, share: float) -> dict[str, Any]:
    """
    Return bounds of a traced share: the profiler slows steps down, which hides waits, but none for
    a pipeline that makes its elements in much less time than a step takes.
    """
    timed_s, capacity = mean_step(evidence.recording).number, input_capacity(evidence.stages)
    if not timed_s or not capacity:
        return {}
    trace, steps = evidence.pipeline
    begun = int((steps.of(elements_taken(trace).start) >= 0).sum())
    needed = begun / steps.n_steps / capacity / timed_s
    if needed < _NEARLY_A_STEP:
        return {}
    why = (
        "the profiler slows the steps down, which hides waits for a pipeline that takes "
        f"{format_quantity(needed, SHARE)} of their time"
    )
    return {"low": share, "high": 1.0, "bounds": why, "at_least": True}


def _host_overhead(evidence: Evidence, trace: Trace) -> Value:
    """Return host_overhead, known where the host's events and those of the step's work show."""
    if not (shows_host(trace) and _shows_work(trace)):
        of_jax = evidence.framework == JAX and shows_host(trace)
        return Value.unknown("host_overhead", _NO_WORK_OF_JAX if of_jax else _NO_WORK)
    cause = copies_by_host(evidence, trace) or python_cause(evidence)
    if not cause:
        remedy = overhead_remedy(evidence.framework, _calls_one_function(evidence))
        cause = {"where": _OVERHEAD[evidence.framework == JAX], "try": remedy}
    share = evidence.breakdown.share("other")
    return Value.of("host_overhead", share, Source.TRACE, **cause)


def _calls_one_function(evidence: Evidence) -> bool:
    """Return whether each step is one call of a tf.function or jax.jit function, and no more."""
    if evidence.framework == JAX:
        return sum(evidence.xla.modules.values()) == 1
    n_calls = sum(sum(use.calls.values()) for use in evidence.functions)
    return n_calls == len(evidence.launched) and not evidence.eager_ops[1]


def _device_values(evidence: Evidence, trace: Trace) -> dict[str, Value]:
    """Return device_busy, device_time and collective_time."""
    breakdown, steps = evidence.breakdown, evidence.steps
    device = breakdown.device
    if not device.busy[0].size:
        has_plane = any(GPU.match(plane.name) or TPU.match(plane.name) for plane in trace.planes)
        why = _NO_DEVICE_WORK if has_plane else _NO_DEVICE
        return {name: Value.unknown(name, why) for name in _OF_DEVICES}
    awaiting = _awaiting_share(evidence.device_ops)
    detail = {"n_devices": device.n_devices, **({"awaiting_share": awaiting} if awaiting else {})}
    busy_ps = covered(device.busy, steps.start_ps, steps.end_ps).sum()
    share = float(busy_ps / max(steps.period_ps.sum(), 1))
    collectives = Value.of(
        "collective_time",
        breakdown.share("collective"),
        Source.TRACE,
        n_devices=device.n_devices,
    )
    if hidden := why_collectives_hidden(evidence):
        collectives = Value.unknown("collective_time", hidden)
    return {
        "device_busy": Value.of("device_busy", share, Source.TRACE, **detail),
        "device_time": _device_time(evidence),
        "collective_time": collectives,
    }


def _device_time(evidence: Evidence) -> Value:
    """Return device_time, with the ops that take most of it."""
    value = device_time(evidence.device_parts)
    if value.number is None:
        return value
    ops = [op for op in evidence.device_ops if op.kind not in NOT_EXECUTING]
    ops.sort(key=lambda op: -op.self_s)
    total_s = sum(op.self_s for op in ops)
    large = [op for op in ops[:_NAMED] if op.self_s >= THRESHOLDS.top_op * total_s > 0]
    shares = [f"{op.name} {format_quantity(op.self_s / total_s, SHARE)}" for op in large]
    several, where = value.detail["n_devices"] > 1, []
    if several:
        where.append(f"{value.detail['device']} executes longest")
    if shares:
        where.append(f"the largest ops{' of all devices' * several}: {', '.join(shares)}")
    return value.changed(detail={**value.detail, **({"where": "; ".join(where)} if where else {})})


def device_time(parts: DeviceParts) -> Value:
    """
    Return the mean seconds in a step of the device that executes longest, on one host. XProf has no
    such figure: its step table has the union over GPUs, and on TPUs the least of the cores
    (openxla/xprof, op_stats_to_input_pipeline_analysis.cc).
    """
    if not parts.names:
        why = "no device ran anything in the steps, and devices ran something outside of them"
        return Value.unknown("device_time", why)
    if not parts.names_kinds:
        return Value.unknown("device_time", NO_CATEGORY)
    busiest = int(parts.executing_ps.sum(axis=1).argmax())
    name, n_devices = parts.names[busiest], len(parts.names)
    n_without = int((sum(part[busiest] for part in parts.parts_ps.values()) == 0).sum())
    if n_without:
        why = (
            f"{n_without} of {plural(len(parts.steps), 'traced step')} have no event of {name}: "
            "they did not run there, or the profiler lost events"
        )
        return Value.unknown("device_time", why)
    seconds = float(parts.executing_ps[busiest].sum()) * 1e-12 / parts.n_steps
    return Value.of("device_time", seconds, Source.TRACE, n_devices=n_devices, device=name)


def why_collectives_hidden(evidence: Evidence) -> str | None:
    """Return why the devices' events may not show collectives, or None if they do."""
    device = evidence.breakdown.device
    if not device.names_kinds:
        return NO_CATEGORY
    host = Events.of(evidence.trace.plane(HOST) if evidence.trace else None)
    ops = host.named(lambda name: (op_type(name) or "").startswith(COLLECTIVES))
    if len(ops) and not device.spans["collective"][0].size:
        return "the host ran collective ops, and no event of a device is one"
    return None


def input_wait(bound: Value, time: Value) -> Value:
    """Return input_bound × `time`, the seconds of a step; their mean where rare long steps wait."""
    if bound.number is None or time.number is None:
        return Value.unknown("input_wait", bound.why or time.why or "")
    shares = {
        key: bound.detail[key] * time.number for key in ("low", "high") if key in bound.detail
    }
    return Value.of(
        "input_wait",
        bound.number * time.number,
        bound.source or Source.TRACE,
        **{**bound.detail, **shares},
    )


def _shows_work(trace: Trace) -> bool:
    """Return whether the trace has events of what runs a step: TensorFlow or an accelerator."""
    return shows_runtime(trace) or bool(accelerators(trace))
