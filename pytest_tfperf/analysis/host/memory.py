"""How much memory a step needs."""

from __future__ import annotations

import numpy as np

from pytest_tfperf.analysis.steps.detect import HOST, Steps
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.events import Events, Mask
from pytest_tfperf.trace.stats import labels
from pytest_tfperf.trace.xspace import Trace

ALLOCATION = "MemoryAllocation"


def step_peaks(trace: Trace, steps: Steps) -> Ints | None:
    """
    Bytes allocated at each step's peak above what was allocated when it began, shape (n_steps,); None without events.

    The events are those of the allocators that keep statistics: small tensors on a CPU bypass them. Where an accelerator's
    allocator is among them, those of accelerators alone count. Of several allocators it is the largest peak: each has memory of its own.
    """
    memory = memory_events(trace)
    on_device = _on_device(memory)
    memory = memory.where(on_device) if on_device.any() else memory
    if not len(memory):
        return None
    code, _ = allocators(memory)
    peaks: Ints = np.max([_peaks(memory.where(code == key).sorted(), steps) for key in np.unique(code)], axis=0)
    return peaks


def reports_device_memory(trace: Trace) -> bool:
    """Whether the allocator of a GPU is among those that report."""
    return bool(_on_device(memory_events(trace)).any())


def memory_events(trace: Trace) -> Events:
    """Allocations and deallocations, each with what its allocator held afterwards."""
    return Events.of(trace.plane(HOST)).called(ALLOCATION, "MemoryDeallocation")


def allocators(memory: Events) -> tuple[Ints, list[str]]:
    """Which allocator each event is of, shape (n,), and the allocators' names; a TPU's is named by the number of its core."""
    code, names = labels(memory, "allocator_name")
    ordinal = np.maximum(memory.integers("index_on_host", -1), memory.integers("device_ordinal", -1))
    of_core = (code == 0) & (ordinal >= 0)
    cores = np.unique(ordinal[of_core])
    code[of_core] = len(names) + np.searchsorted(cores, ordinal[of_core])
    return code, [*names, *(f"TPU:{core}" for core in cores.tolist())]


def level(memory: Events) -> Ints:
    """Bytes that the allocator of each event held after it, with what it reserves (on a TPU the stack of the programs), shape (n,)."""
    return memory.integers("bytes_allocated") + memory.integers("bytes_reserved")


def _peaks(memory: Events, steps: Steps) -> Ints:
    """Of one allocator, whose events are sorted."""
    held, step = level(memory), steps.of(memory.start)
    before = np.searchsorted(memory.start, steps.start_ps) - 1
    peaks = np.zeros(len(steps), np.int64)
    base = held[np.maximum(before, 0)]
    np.maximum.at(peaks, step[step >= 0], (held - base[step])[step >= 0])
    return peaks


def _on_device(memory: Events) -> Mask:
    """Which events are of a GPU's allocator, by its name, shape (n,)."""
    code, names = labels(memory, "allocator_name")
    return np.array([name.startswith("GPU") for name in names], bool)[code]
