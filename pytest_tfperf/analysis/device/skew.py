"""How evenly the devices of a host share the work of a step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_tfperf.analysis.device.planes import kinds_by_name, kinds_of_spans
from pytest_tfperf.analysis.host.op_times import on_device_clock
from pytest_tfperf.analysis.steps.detect import Steps
from pytest_tfperf.analysis.steps.on_devices import own_steps
from pytest_tfperf.metrics import RATIO, SECONDS, SHARE
from pytest_tfperf.trace.devices import TPU, accelerators, tpu_ops
from pytest_tfperf.trace.intervals import Spans, covered, merge
from pytest_tfperf.trace.nesting import self_times
from pytest_tfperf.trace.xspace import Plane, Trace
from pytest_tfperf.values import Column, Source, Table, Value

Seconds = npt.NDArray[np.float64]

_SHARED = ("collective", "device_to_device")


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTimes:
    """
    Seconds of each device in each step, shape (n_devices, n_steps): in which it was `busy`, and in which it did its own work, `working`.

    Collectives and transfers between devices are no work of its own: in them a fast device waits for a slow one.
    """

    names: tuple[str, ...]
    busy: Seconds
    working: Seconds


def device_times(trace: Trace, steps: Steps) -> DeviceTimes:
    """The times of the devices that did anything in the steps, each in the steps as it ran them."""
    rows = [
        (plane.name.removeprefix("/device:"), *_times(plane, own_steps(plane, steps)))
        for plane in accelerators(trace)
    ]
    rows = [row for row in rows if row[1].any()]
    shape = (len(rows), len(steps))
    return DeviceTimes(
        tuple(name for name, _, _ in rows),
        np.array([busy for _, busy, _ in rows], np.float64).reshape(shape),
        np.array([working for _, _, working in rows], np.float64).reshape(shape),
    )


def idle_seconds(times: DeviceTimes, steps: Steps) -> float:
    """Seconds of the steps in which devices that worked in them did nothing, over all steps and devices."""
    return max(
        len(times.names) * float(steps.period_ps.sum()) * 1e-12 - float(times.busy.sum()), 0.0
    )


def step_skew(times: DeviceTimes) -> Value:
    """
    Slowest ÷ median over the devices − 1, of the time in which each did its own work; the median over the steps.

    Time in collectives is left out: devices that step together take equally long with it, however unevenly they work.
    """
    if len(times.names) < 2:
        return Value.unknown(
            "step_skew",
            f"{len(times.names) or 'no'} device of this host worked in the steps; it takes two to compare",
        )
    middle = np.median(times.working, axis=0)
    known = middle > 0
    if not known.any():
        return Value.unknown("step_skew", "most devices did no work of their own in the steps")
    skew = times.working.max(axis=0)[known] / middle[known] - 1
    slowest = times.names[int(times.working.sum(axis=1).argmax())]
    detail = (
        {"low": float(skew.min()), "high": float(skew.max())} if skew.min() != skew.max() else {}
    )
    return Value.of(
        "step_skew",
        float(np.median(skew)),
        Source.TRACE,
        n_devices=len(times.names),
        slowest=slowest,
        **detail,
    )


def device_table(times: DeviceTimes, steps: Steps) -> Table:
    """The devices by the time of their own work: seconds per step, share of the period, and how much more than the median device."""
    columns = [
        Column("device", "device"),
        Column("busy", "busy", SECONDS),
        Column("working", "working", SECONDS),
        Column("busy_share", "busy share", SHARE),
        Column("over_median", "more than the median", RATIO),
    ]
    period, n_steps = float(steps.period_ps.sum()) * 1e-12, steps.n_steps
    working = times.working.sum(axis=1)
    middle = float(np.median(working)) if working.size else 0.0
    rows = [
        (
            times.names[i],
            float(times.busy[i].sum()) / n_steps,
            float(working[i]) / n_steps,
            min(float(times.busy[i].sum()) / period, 1.0) if period else None,
            float(working[i]) / middle - 1 if middle else None,
        )
        for i in np.argsort(-working, kind="stable").tolist()
    ]
    return Table.of("devices", columns, rows)


def _times(plane: Plane, steps: Steps) -> tuple[Seconds, Seconds]:
    """Busy and working seconds of one device in its steps, each of shape (n_steps,)."""
    if TPU.match(plane.name):
        return _tpu_times(plane, steps)
    spans = dict(kinds_of_spans(plane))
    busy, working = (
        merge(*spans.values()),
        merge(*(span for kind, span in spans.items() if kind not in _SHARED)),
    )
    return _seconds(busy, steps), _seconds(working, steps)


def _tpu_times(plane: Plane, steps: Steps) -> tuple[Seconds, Seconds]:
    """Of a TPU core by its own clock: on the trace's, the times of single steps are off by more than cores differ."""
    ops, kind_of = tpu_ops(plane), kinds_by_name(plane)
    alone = ops.named(lambda name: kind_of(name) not in _SHARED)
    seconds, step = self_times(on_device_clock(ops)) * 1e-12, steps.of(ops.start)
    working = (step >= 0) & np.isin(ops.rows, alone.rows)
    busy: Seconds = np.bincount(step[step >= 0], seconds[step >= 0], len(steps)).astype(np.float64)
    return busy, np.bincount(step[working], seconds[working], len(steps)).astype(np.float64)


def _seconds(spans: Spans, steps: Steps) -> Seconds:
    return covered(spans, steps.start_ps, steps.end_ps).astype(np.float64) * 1e-12
