"""Divide the time of each step into parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pytest_tfperf.analysis.device.planes import DeviceActivity, find_device_activity
from pytest_tfperf.analysis.host.activity import Activity, find_activity, launches
from pytest_tfperf.analysis.input.waits import input_waits, pushed_input
from pytest_tfperf.analysis.steps.detect import Steps
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.intervals import Spans, covered, merge, subtract
from pytest_tfperf.trace.xspace import Trace
from pytest_tfperf.values import PARTS


@dataclass(frozen=True, slots=True, eq=False)
class Breakdown:
    """Parts of each step; they sum to the periods."""

    parts_ps: dict[str, Ints]
    """Picoseconds by part of `values.PARTS`, each of shape (n_steps,)."""
    period_ps: Ints
    """Periods in picoseconds, shape (n_steps,)."""
    device: DeviceActivity
    """Activity of the accelerators."""

    def share(self, part: str) -> float:
        """Return a part of all steps ÷ their periods."""
        return float(self.parts_ps[part].sum() / max(self.period_ps.sum(), 1))


def break_down(trace: Trace, steps: Steps, waits: Spans | None = None) -> Breakdown:
    """
    Divide each step of a host into parts, device and host sides together.

    An instant counts once, as the first of these that holds. A device computes, copies to the host,
    copies on or between devices, or is in a collective. The step waits for input, with no device
    busy and, without devices, no model op on another thread; or the host gives input to the
    device. A kernel is launched. Something is compiled. TensorFlow is active on the host. The rest
    is other: Python and the loop.

    Args:
        trace: The trace of the steps.
        steps: The steps as the devices ran them.
        waits: The waits for input (`input_waits`), if known already.
    """
    activity, device = find_activity(trace), find_device_activity(trace)
    parts = {part: np.zeros(len(steps), np.int64) for part in PARTS}
    taken: Spans = merge()
    waits = input_waits(trace) if waits is None else waits
    for part, spans in _in_order(trace, waits, activity, device):
        parts[part] = parts[part] + covered(subtract(spans, taken), steps.start_ps, steps.end_ps)
        taken = merge(taken, spans)
    parts["other"] = steps.period_ps - sum(parts.values(), np.zeros(len(steps), np.int64))
    return Breakdown(parts, steps.period_ps, device)


def _in_order(
    trace: Trace, waits: Spans, activity: Activity, device: DeviceActivity
) -> list[tuple[str, Spans]]:
    waiting = merge(waits)
    if not device.n_devices:
        waiting = subtract(waiting, activity.model)
    copied_in = merge(device.spans["input"], pushed_input(trace))
    return [
        *((kind, spans) for kind, spans in device.spans.items() if kind != "input"),
        ("input", waiting),
        ("input", copied_in),
        ("kernel_launch", launches(trace) if device.n_devices else merge()),
        ("compile", activity.compile),
        ("host_compute", merge(activity.model, activity.runtime)),
    ]
