"""How much memory a step needs."""

from __future__ import annotations

import numpy as np

from pytest_tfperf.analysis.steps import HOST, Steps
from pytest_tfperf.trace.events import Events, Mask
from pytest_tfperf.trace.wire import Ints
from pytest_tfperf.trace.xspace import Trace


def step_peaks(trace: Trace, steps: Steps) -> Ints | None:
    """
    Bytes allocated at each step's peak above what was allocated when it began, shape (n_steps,); None without events.

    The events are those of the allocators that keep statistics: small tensors on a CPU bypass them. Where an accelerator's
    allocator is among them, its events alone count.
    """
    memory = _events(trace)
    on_device = _on_device(memory)
    memory = memory.where(on_device) if on_device.any() else memory
    if not len(memory):
        return None
    memory = memory.sorted()
    level, step = memory.integers("bytes_allocated"), steps.of(memory.start)
    before = np.searchsorted(memory.start, steps.start_ps) - 1
    peaks = np.zeros(len(steps), np.int64)
    base = level[np.maximum(before, 0)]
    np.maximum.at(peaks, step[step >= 0], (level - base[step])[step >= 0])
    return peaks


def reports_device_memory(trace: Trace) -> bool:
    """Whether the allocator of a GPU is among those that report."""
    return bool(_on_device(_events(trace)).any())


def _events(trace: Trace) -> Events:
    return Events.of(trace.plane(HOST)).called("MemoryAllocation", "MemoryDeallocation")


def _on_device(memory: Events) -> Mask:
    """Which events are of a GPU's allocator, by its name, shape (n,)."""
    return np.array([name.startswith("GPU") for name in memory.texts("allocator_name")], bool)
