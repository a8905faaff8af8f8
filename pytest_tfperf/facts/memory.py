"""Measure the memory that a step needs."""

from __future__ import annotations

import numpy as np

from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.event_columns import distinct_values
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.nesting import enclosing
from pytest_tfperf.trace.stat_columns import Mask
from pytest_tfperf.trace.stats import labels
from pytest_tfperf.trace.xspace import HOST, Trace

ALLOCATION = "MemoryAllocation"
_MOST_ALLOCATORS = 1024  # each costs some 2 ms; MOST_DEVICES is as large
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
    largest = np.zeros(len(steps), np.int64)
    for key in distinct_values(code):
        np.maximum(largest, _peaks(memory.where(code == key).sorted(), steps), out=largest)
    return largest


def why_not_followed(trace: Trace) -> str:
    """Return why no allocator is followed, empty if all are."""
    code, _ = allocators(memory_events(trace))
    n_allocators = distinct_values(code).size
    if n_allocators <= _MOST_ALLOCATORS:
        return ""
    return (
        f"the trace names {n_allocators:,} allocators, and at most {_MOST_ALLOCATORS:,} are"
        " followed; a host has one for each device and some of its own"
    )


def least_peak(trace: Trace, steps: Steps) -> int:
    """
    Return the bytes that the smallest step's peak has at least, in whichever order its ops run.

    They are the step's largest allocation, less older allocations that it frees, with a margin of
    `_RESIZED`. Only allocations by ops count: they name one, or are made while an eager op runs.
    The others are results of executables, and copies of arrays: TensorFlow copies an array that
    NumPy happens not to align to 64 bytes.
    """
    memory = memory_events(trace).sorted()
    step, sizes = steps.of(memory.start), memory.integers("allocation_bytes")
    kernels = Events.of(trace.plane(HOST)).called("EagerKernelExecute")
    names_op = np.array([bool(op) for op in memory.texts("tf_op")], bool)
    is_allocation = np.array([name == ALLOCATION for name in memory.names], bool)
    by_op = is_allocation & (names_op | (enclosing(kernels, memory) >= 0))
    origin = _origins(memory, is_allocation)
    older = (origin >= 0) & by_op[origin] & (step[origin] != step)
    largest, freed = np.zeros(len(steps), np.int64), np.zeros(len(steps), np.int64)
    np.maximum.at(largest, step[by_op & (step >= 0)], sizes[by_op & (step >= 0)])
    np.add.at(freed, step[older & (step >= 0)], sizes[older & (step >= 0)])
    return max(int((largest - freed).min()), 0) // _RESIZED


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
    cores = distinct_values(ordinal[of_core])
    code[of_core] = len(names) + np.searchsorted(cores, ordinal[of_core])
    return code, [*names, *(f"TPU:{core}" for core in cores.tolist())]


def level(memory: Events) -> Ints:
    """
    Return the bytes that each event's allocator held after it, shape (n,), with its reserved bytes.

    On a TPU the reserved bytes are the stack of the programs.
    """
    return memory.integers("bytes_allocated") + memory.integers("bytes_reserved")


def _origins(memory: Events, is_allocation: Mask) -> Ints:
    """
    Return the index of the allocation that each deallocation frees, -1 if unknown, shape (n,).

    Args:
        memory: Events, sorted by time.
        is_allocation: Mask of the allocations, shape (n,).
    """
    address = memory.integers("addr")
    order = np.argsort(address, kind="stable")
    before, after = order[:-1], order[1:]
    pairs = (address[before] == address[after]) & is_allocation[before] & ~is_allocation[after]
    origins = np.full(len(memory), -1)
    origins[after[pairs]] = before[pairs]
    return origins


def _peaks(memory: Events, steps: Steps) -> Ints:
    """Return the peaks of one allocator, whose events are sorted."""
    held, step = level(memory), steps.of(memory.start)
    before = np.searchsorted(memory.start, steps.start_ps)
    base = np.concatenate([[_before_all(memory, int(held[0]))], held])[before]
    peaks = np.zeros(len(steps), np.int64)
    np.maximum.at(peaks, step[step >= 0], (held - base[step])[step >= 0])
    return peaks


def _before_all(memory: Events, held: int) -> int:
    """Return the bytes held before the first event, from those held after it."""
    first = Events(memory.plane, memory.rows[:1])
    size = int(first.integers("allocation_bytes")[0])
    return max(held - size, 0) if first.names == [ALLOCATION] else held + size


def _on_device(memory: Events) -> Mask:
    """Return a mask of events of GPU allocators, by name, shape (n,)."""
    code, names = labels(memory, "allocator_name")
    return np.array([name.startswith("GPU") for name in names], bool)[code]
