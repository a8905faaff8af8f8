"""Measure the seconds in which each device of a host worked in the steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_tfperf.facts.device_ops import on_device_clock
from pytest_tfperf.facts.device_planes import kinds_by_name, kinds_of_spans
from pytest_tfperf.facts.on_devices import own_steps
from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.trace.devices import TPU, accelerators, device_name, tpu_ops
from pytest_tfperf.trace.events import self_times
from pytest_tfperf.trace.intervals import Spans, covered, merge
from pytest_tfperf.trace.xspace import Plane, Trace

Seconds = npt.NDArray[np.float64]

_SHARED = ("collective", "device_to_device")


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTimes:
    """Seconds of each device in each step."""

    names: tuple[str, ...]
    """Names of the devices."""
    busy: Seconds
    """Seconds with any activity, shape (n_devices, n_steps)."""
    working: Seconds
    """
    Seconds of the device's own work, shape (n_devices, n_steps): without collectives and transfers
    between devices, in which a fast device waits for a slow one.
    """


def device_times(trace: Trace, steps: Steps) -> DeviceTimes:
    """Measure each active device in the steps as it ran them."""
    rows = [
        (device_name(plane), *_times(plane, own_steps(plane, steps)))
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
    """Return the idle seconds of active devices, over all steps and devices."""
    return max(
        len(times.names) * float(steps.period_ps.sum()) * 1e-12 - float(times.busy.sum()), 0.0
    )


def _times(plane: Plane, steps: Steps) -> tuple[Seconds, Seconds]:
    """Return busy and working seconds of one device, each of shape (n_steps,)."""
    if TPU.match(plane.name):
        return _tpu_times(plane, steps)
    spans = dict(kinds_of_spans(plane))
    busy, working = (
        merge(*spans.values()),
        merge(*(span for kind, span in spans.items() if kind not in _SHARED)),
    )
    return _seconds(busy, steps), _seconds(working, steps)


def _tpu_times(plane: Plane, steps: Steps) -> tuple[Seconds, Seconds]:
    """
    Measure a TPU core by its own clock.

    On the trace's clock, errors of single steps are larger than differences between cores.
    """
    ops, kind_of = tpu_ops(plane), kinds_by_name(plane)
    alone = ops.named(lambda name: kind_of(name) not in _SHARED)
    seconds, step = self_times(on_device_clock(ops)) * 1e-12, steps.of(ops.start)
    working = (step >= 0) & np.isin(ops.rows, alone.rows)
    busy: Seconds = np.bincount(step[step >= 0], seconds[step >= 0], len(steps)).astype(np.float64)
    return busy, np.bincount(step[working], seconds[working], len(steps)).astype(np.float64)


def _seconds(spans: Spans, steps: Steps) -> Seconds:
    return covered(spans, steps.start_ps, steps.end_ps).astype(np.float64) * 1e-12
