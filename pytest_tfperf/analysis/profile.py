"""From a recording and its trace to a profile: every metric with a number, or with the reason why it has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

import numpy as np

from pytest_tfperf.analysis.advice import advise
from pytest_tfperf.analysis.graph_ops import graph_tables, graph_values
from pytest_tfperf.analysis.host.activity import eager_ops, model_processes
from pytest_tfperf.analysis.host.memory import reports_device_memory, step_peaks
from pytest_tfperf.analysis.input.batch_padding import with_batch_padding
from pytest_tfperf.analysis.input.stages import Stage, find_stages, stage_table
from pytest_tfperf.analysis.input.waits import find_drain, input_waits
from pytest_tfperf.analysis.steps.breakdown import Breakdown, break_down
from pytest_tfperf.analysis.steps.detect import Steps, find_steps
from pytest_tfperf.analysis.steps.on_devices import on_the_device
from pytest_tfperf.analysis.steps.shares import (
    capacity_values,
    device_values,
    host_values,
    input_wait,
    waiting_share,
)
from pytest_tfperf.analysis.tables import device_statistics, host_statistics
from pytest_tfperf.analysis.timing import block_seconds, timed_values, timing_notes
from pytest_tfperf.analysis.trace_errors import faults, remarks, without_incomplete
from pytest_tfperf.analysis.xla.compile_time import compile_seconds, compile_time
from pytest_tfperf.analysis.xla.counts import (
    counted_values,
    eager_value,
    why_unknown,
    with_counts,
    xla_values,
)
from pytest_tfperf.analysis.xla.executables import executable_table, fusions, step_executables
from pytest_tfperf.analysis.xla.executions import XlaUse, find_xla_use
from pytest_tfperf.analysis.xla.step_flops import (
    executable_costs,
    lowered_programs,
    traced_programs,
    work_values,
)
from pytest_tfperf.metrics import METRICS
from pytest_tfperf.op_guide.findings import with_op_guide
from pytest_tfperf.op_types import KEEPS_BATCHES
from pytest_tfperf.padding.gpu_alignment import gpu_alignment
from pytest_tfperf.padding.measured import trace_generation
from pytest_tfperf.padding.overhead import lowered_modules, padding_values
from pytest_tfperf.recording import Recording
from pytest_tfperf.results import Profile
from pytest_tfperf.trace.hlo_modules import buffer_bytes
from pytest_tfperf.trace.intervals import intersect, merge
from pytest_tfperf.trace.xspace import Trace
from pytest_tfperf.values import Source, Step, Table, Value

_TRACKED_BYTES = 1 << 20  # below this, what bypasses the allocator outweighs what it knows
_INPUT_BOUND_MATTERS = (
    0.10  # below this share an unsettled buffer changes step_time by no more than noise does
)
_MORE_THAN_NEEDED = 1.2  # buffers are given a fifth more steps to drain than they should take


def profile_of(recording: Recording, trace: Trace | None, cold: Trace | None = None) -> Profile:
    """
    The profile of a recording; `cold` is the trace of its first step, if that had a session of its own.

    Raises:
        TraceError: If the trace holds no step.
    """
    values = {
        name: Value.unknown(name, recording.ended or "nothing was traced") for name in METRICS
    }
    values["xla_compile_time"] = compile_time(cold, recording)
    if trace is None:
        predicted, _ = padding_values(recording)
        values |= (
            timed_values(recording)
            | counted_values(recording)
            | graph_values(recording, None)
            | predicted
        )
        profile = with_op_guide(
            _profile(recording, values, tables=graph_tables(recording, None)), recording
        )
        return with_batch_padding(profile, recording)
    launched = find_steps(trace)
    steps = on_the_device(trace, launched)
    breakdown = break_down(trace, steps)
    waits = input_waits(trace)
    stages = find_stages(trace, intersect(merge(waits), merge((steps.start_ps, steps.end_ps))))
    recording = _with_batch(with_counts(recording, trace, steps), stages)
    n_steps = steps.n_steps
    values |= timed_values(recording) | counted_values(recording, trace)
    values |= host_values(
        trace, stages, breakdown, find_drain(trace, steps, breakdown.parts_ps["input"])
    ) | device_values(steps, breakdown)
    values |= capacity_values(
        stages, float((steps.of(waits[0]) >= 0).sum()) / n_steps, recording.target_step_time_s
    )
    use = find_xla_use(trace, steps)
    executables = step_executables(trace, use)
    costs = executable_costs(executables)
    values |= xla_values(trace, steps, use, recording)
    values["fusions"] = fusions(trace, steps, use, executables)
    values["input_wait"] = input_wait(values["input_bound"], values["step_time"])
    values["eager_ops"] = eager_value(trace, launched, recording.eager)
    values["peak_memory"] = _memory(trace, steps, use)
    traced = recording.bare and not recording.lowered
    values |= work_values(
        traced_programs(costs, use, _runs_executor(trace, steps))
        if traced
        else lowered_programs(recording, eager_ops(trace, launched)[1])
    )
    tables = {"stages": stage_table(stages, n_steps)} if stages else {}
    for found, more in (
        host_statistics(trace, launched, values),
        device_statistics(trace, launched, steps, values, costs),
    ):
        values, tables = values | found, tables | more
    if executables:
        compiled_s = compile_seconds(trace) | (compile_seconds(cold) if cold else {})
        tables["executables"] = executable_table(trace, use, executables, costs, compiled_s)
    known = (
        executables
        if not why_unknown(trace, use) and len(executables) == len(use.modules)
        else None
    )
    values |= graph_values(recording, known)
    tables |= graph_tables(recording, known)
    runs = use.in_metadata(executables)
    found, more = padding_values(
        recording,
        [(executables[name], runs[name]) for name in runs],
        trace_generation(trace),
        len(use.modules) - len(executables),
    )
    values, tables = values | found, tables | more
    alignment, aligning = gpu_alignment(
        trace, lowered_modules(recording) if recording.lowered else executables.values()
    )
    tables |= {"alignment": alignment} if alignment else {}
    incomplete = faults(trace)
    recording = replace(
        recording, notes=recording.notes + _dropped(steps) + incomplete + remarks(trace)
    )
    profile = with_op_guide(
        _profile(recording, without_incomplete(values, incomplete), steps, breakdown, tables),
        recording,
    )
    profile = with_batch_padding(profile, recording)
    return replace(profile, advice=advise(profile) + aligning)


def settling_steps(trace: Trace, steps_before: int) -> int:
    """
    How many more steps must pass before a window shows the pipeline as it runs for long, 0 if it did.

    Full buffers hide a pipeline that is slower than the steps for as long as they take to drain, which is their capacity ÷
    the share of time that the steps would wait; `steps_before` passed since the last pause, in which they could fill.
    """
    steps = on_the_device(trace, find_steps(trace))
    breakdown = break_down(trace, steps)
    drain = find_drain(trace, steps, breakdown.parts_ps["input"])
    share, _ = waiting_share(breakdown, drain)
    needed = drain.capacity / share if share > _INPUT_BOUND_MATTERS else 0.0
    return (
        0
        if drain.stationary() and needed <= steps_before
        else int(np.ceil(_MORE_THAN_NEEDED * needed))
    )


def _dropped(steps: Steps) -> tuple[str, ...]:
    """Of steps that tf_profile marks itself nothing: there they are the ends of epochs, at which no step came to be."""
    if not steps.n_dropped or steps.source == "tfperf":
        return ()
    return (
        f"{steps.n_dropped} other events from {steps.source} are no steps: {steps.why_dropped}",
    )


def _with_batch(recording: Recording, stages: Sequence[Stage]) -> Recording:
    """The batch of the last batching stage, where the input's signature leaves it open and no stage behind may change it."""
    by_depth = sorted(stages, key=lambda stage: stage.depth)
    behind = list(takewhile(lambda stage: not stage.batch_size, by_depth))
    batch = next((stage.batch_size for stage in by_depth if stage.batch_size), None)
    if (
        batch is None
        or recording.workload.get("batch", 0) is not None
        or any(stage.name not in KEEPS_BATCHES for stage in behind)
    ):
        return recording
    return replace(
        recording,
        workload={**recording.workload, "batch": batch},
        examples_per_step=recording.examples_per_step or batch,
    )


def _profile(
    recording: Recording,
    values: dict[str, Value],
    steps: Steps | None = None,
    breakdown: Breakdown | None = None,
    tables: dict[str, Table] | None = None,
) -> Profile:
    draining = (
        ()
        if recording.settled
        else ("the input buffers were still draining: step_time is not recorded as a baseline",)
    )
    return Profile(
        name=recording.name,
        metrics=values,
        steps=_steps(steps, breakdown) if steps and breakdown else (),
        n_dropped=steps.n_dropped if steps else 0,
        step_source=steps.source if steps else None,
        workload=recording.workload,
        notes=recording.notes + draining + timing_notes(recording),
        ended=recording.ended,
        tables=tables or {},
        blocks_s=block_seconds(recording),
        result=recording.result,
    )


def _steps(steps: Steps, breakdown: Breakdown) -> tuple[Step, ...]:
    parts = {part: (column * 1e-12).tolist() for part, column in breakdown.parts_ps.items()}
    periods = (breakdown.period_ps * 1e-12).tolist()
    return tuple(
        Step(
            name=name,
            period_s=periods[i],
            parts_s={part: column[i] for part, column in parts.items()},
        )
        for i, name in enumerate(steps.names)
    )


def _memory(trace: Trace, steps: Steps, use: XlaUse) -> Value:
    if use.modules and not _runs_executor(trace, steps):
        sizes = buffer_bytes(trace)
        known = [sizes[name] for name in use.in_metadata(sizes) if sizes[name]]
        if known:
            return Value.of("peak_memory", max(known), Source.HLO)
    peaks = step_peaks(trace, steps)
    if peaks is None or peaks.min() < _TRACKED_BYTES:
        why = "not every step allocates 1 MiB that the trace knows of; on a CPU only oneDNN's allocator reports, and small tensors bypass it"
        return Value.unknown("peak_memory", why)
    return Value.of(
        "peak_memory",
        int(peaks.min()),
        Source.TRACE,
        largest=int(peaks.max()),
        on_device=reports_device_memory(trace),
    )


def _runs_executor(trace: Trace, steps: Steps) -> bool:
    return bool((steps.of(model_processes(trace).start) >= 0).any())
