"""Measure the memory that a step needs."""

from __future__ import annotations

import numpy as np

from pytest_tfperf.analysis.steps.detect import Steps
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.stat_columns import Mask
from pytest_tfperf.trace.stats import labels
from pytest_tfperf.trace.xspace import HOST, Trace

ALLOCATION = "MemoryAllocation"
_RESIZED = 2
"""
Most that oneDNN changes an allocation's size from run to run.

Measured: 1.6 times over 14 runs of the convolution in
tests/tensorflow/capture/test_memory_growth.py.
"""


def step_peaks(trace: Trace, steps: Steps) -> Ints | None:
    """
    Return the bytes at each step's peak above those at its start, shape (n_steps,), or None without
    events.

    The events come from allocators that keep statistics: small tensors on a CPU bypass them. If an
    accelerator's allocator reports, only those of accelerators count. Of several allocators the
    largest peak counts, since each has its own memory.
    """
    memory = memory_events(trace)
    on_device = _on_device(memory)
    memory = memory.where(on_device) if on_device.any() else memory
    if not len(memory):
        return None
    code, _ = allocators(memory)
    peaks: Ints = np.max(
        [_peaks(memory.where(code == key).sorted(), steps) for key in np.unique(code)], axis=0
    )
    return peaks


def any_order(trace: Trace, steps: Steps) -> dict[str, int]:
    """
    Return bounds of a step's peak that hold in whichever order its ops run.

    The peak is at least the largest allocation of a step, and at most all of them together. Of the
    steps, the smallest lower and the largest upper bound count. Both have a margin of `_RESIZED`.
    """
    memory = memory_events(trace).called(ALLOCATION)
    sizes, step = memory.integers("allocation_bytes"), steps.of(memory.start)
    inside = step >= 0
    largest, total = np.zeros(len(steps), np.int64), np.zeros(len(steps), np.int64)
    np.maximum.at(largest, step[inside], sizes[inside])
    np.add.at(total, step[inside], sizes[inside])
    return {"at_least": int(largest.min()) // _RESIZED, "at_most": int(total.max()) * _RESIZED}


def reports_device_memory(trace: Trace) -> bool:
    """Return whether a GPU's allocator reports."""
    return bool(_on_device(memory_events(trace)).any())


def memory_events(trace: Trace) -> Events:
    """
    Return allocations and deallocations, each with the bytes that its allocator held afterwards.
    """
    return Events.of(trace.plane(HOST)).called(ALLOCATION, "MemoryDeallocation")


def allocators(memory: Events) -> tuple[Ints, list[str]]:
    """
    Return the allocator of each event, shape (n,), and their names; a TPU's is the number of its
    core.
    """
    code, names = labels(memory, "allocator_name")
    ordinal = np.maximum(
        memory.integers("index_on_host", -1), memory.integers("device_ordinal", -1)
    )
    of_core = (code == 0) & (ordinal >= 0)
    cores = np.unique(ordinal[of_core])
    code[of_core] = len(names) + np.searchsorted(cores, ordinal[of_core])
    return code, [*names, *(f"TPU:{core}" for core in cores.tolist())]


def level(memory: Events) -> Ints:
    """
    Return the bytes that each event's allocator held after it, shape (n,), with its reserved bytes.

    On a TPU the reserved bytes are the stack of the programs.
    """
    return memory.integers("bytes_allocated") + memory.integers("bytes_reserved")


def _peaks(memory: Events, steps: Steps) -> Ints:
    """Return the peaks of one allocator, whose events are sorted."""
    held, step = level(memory), steps.of(memory.start)
    before = np.searchsorted(memory.start, steps.start_ps) - 1
    peaks = np.zeros(len(steps), np.int64)
    base = held[np.maximum(before, 0)]
    np.maximum.at(peaks, step[step >= 0], (held - base[step])[step >= 0])
    return peaks


def _on_device(memory: Events) -> Mask:
    """Return a mask of events of GPU allocators, by name, shape (n,)."""
    code, names = labels(memory, "allocator_name")
    return np.array([name.startswith("GPU") for name in names], bool)[code]
