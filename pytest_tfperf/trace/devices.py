"""The accelerator planes of a trace."""

from __future__ import annotations

import re

import numpy as np

from pytest_tfperf.errors import TraceError
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.own_program import without_waits
from pytest_tfperf.trace.xspace import Plane, Trace

MOST_DEVICE_STEPS = 2_000_000
"""
Steps times devices of a trace: some 300 MB.

Real traces have hundreds of steps, on up to 16 devices.
"""

_DERIVED = range(0xDEADBEEF - (1 << 32), 0xDEADBEEF - (1 << 32) + 512)
"""Ids, as int32, of the lines that XProf derives from others.

Source: kThreadIdDerivedMin (xla/tsl/profiler/utils/trace_utils.h).
"""
_DERIVED_NAMES = frozenset(
    {
        "Steps",
        "XLA Modules",
        "XLA Ops",
        "Framework Ops",
        "TensorFlow Ops",
        "Framework Name Scope",
        "TensorFlow Name Scope",
        "Source code",
    }
    | {"Launch Stats", "Async XLA Ops", "XLA TraceMe", "Host Offload Ops", "_counters_"}
)
"""Names of lines that XProf derives from others."""
GPU = re.compile(r"/device:GPU:\d+\Z")
TPU = re.compile(r"/device:TPU:\d+\Z")


def accelerators(trace: Trace) -> list[Plane]:
    """Return the planes with events of GPUs and TPU cores, without a TPU's sparse cores."""
    return gpus(trace) + tpus(trace)


def refuse_many_steps(trace: Trace, n_steps: int) -> None:
    """
    Refuse a trace of too many steps on too many devices, since each is analysed on each.

    Raises:
        TraceError: If there are more than `MOST_DEVICE_STEPS` of them.
    """
    n_devices = len(accelerators(trace))
    if n_steps * n_devices > MOST_DEVICE_STEPS:
        raise TraceError(
            f"trace {trace.path}: {n_steps:,} steps on {n_devices:,} devices, and at most"
            f" {MOST_DEVICE_STEPS:,} steps of all devices together are analysed; trace fewer steps"
        )


def gpus(trace: Trace) -> list[Plane]:
    """Return the planes with events of GPUs."""
    return [plane for plane in trace.planes if plane.start_ps.size and GPU.match(plane.name)]


def tpus(trace: Trace) -> list[Plane]:
    """Return the planes with events of TPU cores."""
    return [plane for plane in trace.planes if plane.start_ps.size and TPU.match(plane.name)]


def device_name(plane: Plane) -> str:
    """Return the name of a device from that of its plane, as in `GPU:0`."""
    return plane.name.removeprefix("/device:")


def stream_events(plane: Plane) -> Events:
    """Return the events of a GPU's streams: kernels and copies."""
    streams = [
        i
        for i, line in enumerate(plane.lines)
        if line.id not in _DERIVED and line.name not in _DERIVED_NAMES
    ]
    events = Events.of(plane)
    return without_waits(events.where(np.isin(events.line, streams)))


def tpu_ops(plane: Plane) -> Events:
    """Return the events of a TPU core's op line."""
    ops = (
        i
        for i, line in enumerate(plane.lines)
        if line.name in ("XLA Ops", "Framework Ops", "TensorFlow Ops")
    )
    return Events.of(plane).on_line(next(ops, -1))
