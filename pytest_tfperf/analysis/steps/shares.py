"""Which share of the steps waits for input, runs Python, and has the devices busy; and what the pipeline could feed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_tfperf.analysis import diagnosis
from pytest_tfperf.analysis.input.stages import Stage, input_capacity
from pytest_tfperf.analysis.input.waits import Drain
from pytest_tfperf.analysis.steps.breakdown import Breakdown
from pytest_tfperf.analysis.steps.detect import Steps
from pytest_tfperf.trace.intervals import covered
from pytest_tfperf.trace.xspace import HOST, Trace
from pytest_tfperf.values import Source, Value

_DRAINED = 0.95  # elements produced ÷ consumed, below which a share is corrected


def waiting_share(breakdown: Breakdown, drain: Drain) -> tuple[float, Source]:
    """The share of the steps that waits for input; corrected where the buffers drained meanwhile."""
    observed = breakdown.share("input")
    return (
        (drain.corrected(observed), Source.CORRECTED)
        if drain.kept < _DRAINED
        else (observed, Source.TRACE)
    )


def host_values(
    trace: Trace, stages: Sequence[Stage], breakdown: Breakdown, drain: Drain
) -> dict[str, Value]:
    """input_bound and host_overhead."""
    host = trace.plane(HOST)
    if (host is None or not host.start_ps.size) and not breakdown.share("input"):
        why = "the trace has no event of the host, and no device in it takes input"
        return {name: Value.unknown(name, why) for name in ("input_bound", "host_overhead")}
    share, source = waiting_share(breakdown, drain)
    observed = breakdown.share("input")
    detail: dict[str, Any] = {"observed": observed, "halves": list(drain.halves)} | (
        diagnosis.input_cause(stages) if share > 0 else {}
    )
    if source is Source.CORRECTED:
        detail["corrected"] = (
            f"buffers gave {1 - drain.kept:.0%} of the elements while the steps were traced; without them the steps wait longer than "
            f"the {observed:.1%} seen"
        )
    return {
        "input_bound": Value.of("input_bound", share, source, **detail),
        "host_overhead": Value.of(
            "host_overhead", breakdown.share("other"), Source.TRACE, **diagnosis.overhead_cause()
        ),
    }


def device_values(steps: Steps, breakdown: Breakdown) -> dict[str, Value]:
    """device_busy and collective_time."""
    device = breakdown.device
    if not device.n_devices:
        why = "the trace has no device plane: it is of a CPU, or the profiler had no access to the accelerator"
        return {name: Value.unknown(name, why) for name in ("device_busy", "collective_time")}
    busy = covered(device.busy, steps.start_ps, steps.end_ps).sum() / max(steps.period_ps.sum(), 1)
    return {
        "device_busy": Value.of(
            "device_busy", float(busy), Source.TRACE, n_devices=device.n_devices
        ),
        "collective_time": Value.of(
            "collective_time",
            breakdown.share("collective"),
            Source.TRACE,
            n_devices=device.n_devices,
        ),
    }


def input_wait(bound: Value, time: Value) -> Value:
    """The time that a step waits: input_bound × step_time."""
    if bound.number is None or time.number is None:
        return Value.unknown("input_wait", bound.why or time.why or "")
    return Value.of(
        "input_wait", bound.number * time.number, bound.source or Source.TRACE, **bound.detail
    )


def capacity_values(
    stages: Sequence[Stage], elements_per_step: float, target_s: float | None
) -> dict[str, Value]:
    """
    input_capacity, and input_bound_at_target: what a step of the target's time would wait for a pipeline of that capacity.

    Such a step takes as long as its elements: period = max(target, elements a step ÷ capacity), share = 1 − target ÷ period.
    """
    capacity = input_capacity(stages)
    if capacity is None:
        why = "no tf.data stage made an element while the steps were traced, so what the pipeline costs is not known"
        return {
            name: Value.unknown(name, why) for name in ("input_capacity", "input_bound_at_target")
        }
    slowest = max(stages, key=lambda stage: stage.cost_s)
    found = Value.of(
        "input_capacity", capacity, Source.TRACE, **diagnosis.stage_cause(slowest, stages)
    )
    if target_s is None:
        return {
            "input_capacity": found,
            "input_bound_at_target": Value.unknown(
                "input_bound_at_target", "no target: give target_step_time, as in '12 ms'"
            ),
        }
    period = max(target_s, elements_per_step / capacity)
    share = 1 - target_s / period
    at_target = Value.of(
        "input_bound_at_target",
        share,
        Source.PREDICTED,
        target_step_time_s=target_s,
        **found.detail,
    )
    return {"input_capacity": found, "input_bound_at_target": at_target}
