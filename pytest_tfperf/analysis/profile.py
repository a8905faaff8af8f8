"""From a recording and its trace to a profile: every metric with a number, or with the reason why it has none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pytest_tfperf.analysis import advice
from pytest_tfperf.analysis.breakdown import Breakdown, break_down
from pytest_tfperf.analysis.input_pipeline import Drain, find_drain
from pytest_tfperf.analysis.memory import reports_device_memory, step_peaks
from pytest_tfperf.analysis.ops import compiled_again, eager_ops, model_processes, traced_again, traced_late
from pytest_tfperf.analysis.stages import Stage, find_stages
from pytest_tfperf.analysis.steps import Steps, find_steps
from pytest_tfperf.analysis.timing import timed_values
from pytest_tfperf.analysis.xla import XlaUse, compiled_late, compiled_outside, find_xla_use
from pytest_tfperf.metrics import METRICS
from pytest_tfperf.results import Profile, Recording, Source, Step, Value
from pytest_tfperf.trace.hlo import buffer_bytes
from pytest_tfperf.trace.intervals import covered
from pytest_tfperf.trace.wire import Ints
from pytest_tfperf.trace.xspace import Trace

_NOT_BUILT = "this version of pytest-tfperf does not measure it yet"
_TRACED = (
    "input_bound",
    "input_wait",
    "host_overhead",
    "xla_clusters",
    "xla_launches",
    "eager_ops",
    "peak_memory",
    "device_busy",
    "collective_time",
)
_OF_DEVICES = ("device_busy", "collective_time")
_TRACKED_BYTES = 1 << 20  # below this, what bypasses the allocator outweighs what it knows
_INPUT_BOUND_MATTERS = 0.10  # below this share an unsettled buffer changes step_time by no more than noise does
_DRAINED = 0.95  # elements produced ÷ consumed, below which a share is corrected
_MORE_THAN_NEEDED = 1.2  # buffers are given a fifth more steps to drain than they should take


def profile_of(recording: Recording, trace: Trace | None) -> Profile:
    """
    The profile of a recording.

    Raises:
        TraceError: If the trace holds no step.
    """
    values = {name: Value.unknown(name, _NOT_BUILT) for name in METRICS}
    if trace is None:
        why = recording.ended or "nothing was traced"
        values |= timed_values(recording) | _counted_values(recording) | {name: Value.unknown(name, why) for name in _TRACED}
        return _profile(recording, values)
    steps = find_steps(trace)
    stages = find_stages(trace)
    recording = _with_batch(_with_counts(recording, trace, steps), stages)
    values |= timed_values(recording) | _counted_values(recording)
    breakdown = break_down(trace, steps)
    drain = find_drain(trace, steps, breakdown.parts_ps["input"])
    use = find_xla_use(trace, steps)
    values |= _shares(stages, breakdown, drain) | _xla(trace, steps, use, recording)
    values["input_wait"] = _input_wait(values)
    values["eager_ops"] = _eager(trace, steps)
    values["peak_memory"] = _memory(trace, steps, use)
    values |= _devices(steps, breakdown, values["peak_memory"])
    notes = () if recording.settled else ("the input buffers were still draining: step_time is not recorded as a baseline",)
    return _profile(recording, values, steps, breakdown, notes)


def _with_counts(recording: Recording, trace: Trace, steps: Steps) -> Recording:
    """A bare trace's own counts of what was compiled and traced after its first step; of function calls, after each function's first."""
    if not recording.bare:
        return recording
    unmarked = steps.source == "function"
    compiled = tuple(compiled_again(trace) if unmarked else compiled_late(trace, steps))
    traced = tuple(traced_again(trace) if unmarked else traced_late(trace, steps))
    return replace(recording, compiled=compiled, traced=traced, n_steps=len(steps), n_epochs=steps.n_epochs - 1)


def _with_batch(recording: Recording, stages: tuple[Stage, ...]) -> Recording:
    """The batch size of the pipeline's last batching stage, where the input's signature leaves it open."""
    batch = next((stage.batch_size for stage in sorted(stages, key=lambda stage: stage.depth) if stage.batch_size), None)
    if batch is None or recording.workload.get("batch", 0) is not None:
        return recording
    return replace(recording, workload={**recording.workload, "batch": batch}, examples_per_step=recording.examples_per_step or batch)


def settling_steps(trace: Trace, steps_before: int) -> int:
    """
    How many more steps must pass before a window shows the pipeline as it runs for long, 0 if it did.

    Full buffers hide a pipeline that is slower than the steps for as long as they take to drain, which is their capacity ÷
    the share of time that the steps would wait; `steps_before` passed since the last pause, in which they could fill.
    """
    steps = find_steps(trace)
    breakdown = break_down(trace, steps)
    drain = find_drain(trace, steps, breakdown.parts_ps["input"])
    share = breakdown.share("input") if drain.kept >= _DRAINED else drain.corrected(breakdown.share("input"))
    needed = drain.capacity / share if share > _INPUT_BOUND_MATTERS else 0.0
    return 0 if drain.stationary() and needed <= steps_before else int(np.ceil(_MORE_THAN_NEEDED * needed))


def _profile(
    recording: Recording,
    values: dict[str, Value],
    steps: Steps | None = None,
    breakdown: Breakdown | None = None,
    notes: tuple[str, ...] = (),
) -> Profile:
    return Profile(
        name=recording.name,
        metrics=values,
        steps=_steps(steps, breakdown) if steps and breakdown else (),
        n_dropped=steps.n_dropped if steps else 0,
        step_source=steps.source if steps else None,
        workload=recording.workload,
        notes=recording.notes + notes,
        ended=recording.ended,
        result=recording.result,
    )


def _steps(steps: Steps, breakdown: Breakdown) -> tuple[Step, ...]:
    parts = {part: (column * 1e-12).tolist() for part, column in breakdown.parts_ps.items()}
    periods = (breakdown.period_ps * 1e-12).tolist()
    return tuple(
        Step(name=name, period_s=periods[i], parts_s={part: column[i] for part, column in parts.items()})
        for i, name in enumerate(steps.names)
    )


def _shares(stages: tuple[Stage, ...], breakdown: Breakdown, drain: Drain) -> dict[str, Value]:
    observed = breakdown.share("input")
    corrected = drain.kept < _DRAINED
    share = drain.corrected(observed) if corrected else observed
    source = Source.CORRECTED if corrected else Source.TRACE
    cause = advice.input_cause(stages) if share > 0 else {}
    detail: dict[str, Any] = {"observed": observed, "halves": list(drain.halves)} | cause
    if corrected:
        detail["corrected"] = (
            f"buffers gave {1 - drain.kept:.0%} of the elements while the steps were traced; without them the steps wait longer than "
            f"the {observed:.1%} seen"
        )
    overhead = breakdown.share("other")
    return {
        "input_bound": Value.of("input_bound", share, source, **detail),
        "host_overhead": Value.of("host_overhead", overhead, Source.TRACE, **advice.overhead_cause()),
    }


def _devices(steps: Steps, breakdown: Breakdown, memory: Value) -> dict[str, Value]:
    """What an accelerator's trace says besides; and what of a CPU's does not hold for it."""
    device = breakdown.device
    if not device.n_devices:
        why = "the trace has no device plane: it is of a CPU, or the profiler had no access to the accelerator"
        return {name: Value.unknown(name, why) for name in _OF_DEVICES}
    busy = covered(device.busy, steps.start_ps, steps.end_ps).sum() / max(steps.period_ps.sum(), 1)
    elsewhere = "on an accelerator it is not read from the trace yet"
    return {
        "xla_clusters": Value.unknown("xla_clusters", elsewhere),
        "xla_launches": Value.unknown("xla_launches", elsewhere),
        "peak_memory": memory if memory.detail.get("on_device") else Value.unknown("peak_memory", elsewhere),
        "device_busy": Value.of("device_busy", float(busy), Source.TRACE, n_devices=device.n_devices),
        "collective_time": Value.of("collective_time", breakdown.share("collective"), Source.TRACE, n_devices=device.n_devices),
    }


def _input_wait(values: dict[str, Value]) -> Value:
    bound, time = values["input_bound"], values["step_time"]
    if bound.number is None or time.number is None:
        return Value.unknown("input_wait", bound.why or time.why or "")
    return Value.of("input_wait", bound.number * time.number, bound.source or Source.TRACE, **bound.detail)


def _counted_values(recording: Recording) -> dict[str, Value]:
    """Counts over all steps after the first: what was compiled and traced again."""
    over = {"n_steps": max(recording.n_steps - 1, 0), "n_epoch_ends": recording.n_epochs}
    nothing = recording.ended or "only steps that tf_profile drives are watched from the first to the last"
    compiled, traced = recording.compiled, recording.traced
    if not over["n_steps"]:
        compiled = traced = None
    return {
        "xla_compiles": Value.unknown("xla_compiles", nothing)
        if compiled is None
        else Value.of("xla_compiles", len(compiled), Source.TRACE, **over, **(advice.compile_cause(compiled) if compiled else {})),
        "retraces": Value.unknown("retraces", nothing)
        if traced is None
        else Value.of("retraces", len(traced), Source.GRAPH, **over, **(advice.retrace_cause(traced) if traced else {})),
    }


def _xla(trace: Trace, steps: Steps, use: XlaUse, recording: Recording) -> dict[str, Value]:
    modules = {"executables": sorted(use.modules)}
    values = {
        "xla_clusters": _per_step("xla_clusters", use.clusters, None, **modules),
        "xla_launches": _per_step("xla_launches", use.launches, steps.sizes, **modules),
    }
    if recording.compiled and not recording.bare and (elsewhere := compiled_outside(trace, steps)):
        counted = _counted_values(recording)["xla_compiles"]
        values["xla_compiles"] = Value.of(
            "xla_compiles", max(len(recording.compiled) - elsewhere, 0), Source.TRACE, **counted.detail, outside_steps=elsewhere
        )
    return values


def _eager(trace: Trace, steps: Steps) -> Value:
    counts, types = eager_ops(trace, steps)
    return _per_step("eager_ops", counts, steps.sizes, **(advice.eager_cause(types) if types else {}))


def _memory(trace: Trace, steps: Steps, use: XlaUse) -> Value:
    if use.modules and not _runs_executor(trace, steps):
        sizes = buffer_bytes(trace)
        known = [sizes[name] for name in _full_names(use, sizes)]
        if known:
            return Value.of("peak_memory", max(known), Source.HLO)
    peaks = step_peaks(trace, steps)
    if peaks is None or peaks.min() < _TRACKED_BYTES:
        why = (
            "not every step allocates 1 MiB that the trace knows of; on a CPU only oneDNN's allocator reports, and small tensors bypass it"
        )
        return Value.unknown("peak_memory", why)
    return Value.of("peak_memory", int(peaks.min()), Source.TRACE, largest=int(peaks.max()), on_device=reports_device_memory(trace))


def _full_names(use: XlaUse, sizes: dict[str, int]) -> list[str]:
    """The metadata's names of the executables that ran: event stats cut long names, the `(program_id)` at the end is unique."""
    ids = {name.rpartition("(")[2] for name in use.modules}
    return [name for name in sizes if name.rpartition("(")[2] in ids]


def _runs_executor(trace: Trace, steps: Steps) -> bool:
    return bool((steps.of(model_processes(trace).start) >= 0).any())


def _per_step(metric: str, counts: Ints, sizes: Ints | None, **detail: Any) -> Value:
    """The median over the steps, with the smallest and largest where they differ."""
    per_step = counts / (np.ones(1) if sizes is None else np.maximum(sizes, 1))
    if per_step.min() != per_step.max():
        detail |= {"low": float(per_step.min()), "high": float(per_step.max())}
    return Value.of(metric, float(np.median(per_step)), Source.TRACE, n_steps=len(per_step), **detail)
