"""The memory that a step needs: the peak of each allocator, and the allocations that lived then."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.quantities import BYTES, COUNT, SECONDS, SHARE
from pytest_tfperf.stats.slope import slope_with_interval
from pytest_tfperf.trace.devices import accelerators
from pytest_tfperf.trace.events import Events, enclosing, labels
from pytest_tfperf.trace.intervals import distinct_values
from pytest_tfperf.trace.stats import Mask
from pytest_tfperf.trace.xspace import HOST, Trace
from pytest_tfperf.values import Column, Table

ALLOCATION = "MemoryAllocation"
GPU = "GPU"
"""Start of the names of GPUs' allocators."""
_CORE = "TPU:"
_MOST_ALLOCATORS = 1024  # each costs some 2 ms; MOST_DEVICES is as large
_RESIZED = 2
"""
Most that oneDNN changes an allocation's size from run to run.

Measured: 1.6 times over 14 runs of the convolution in
tests/tensorflow/capture/test_memory_growth.py.
"""
RESERVED = "reserved for the programs' stack"
EARLIER = "allocated before the trace began, or never told"
MOMENTS = 32
_CONFIDENCE = 0.99
"""Confidence of the growth of an allocator's memory."""
# tensorflow/core/framework/types.proto, DataType
_DTYPES = (
    "",
    "float32",
    "float64",
    "int32",
    "uint8",
    "int16",
    "int8",
    "string",
    "complex64",
    "int64",
    "bool",
    "qint8",
    "quint8",
    "qint32",
    "bfloat16",
    "qint16",
    "quint16",
    "uint16",
    "complex128",
    "float16",
    "resource",
    "variant",
    "uint32",
    "uint64",
    "float8_e5m2",
    "float8_e4m3fn",
)


def step_peaks(trace: Trace, steps: Steps) -> Ints | None:
    """
    Return the bytes at each step's peak above those at its start, shape (n_steps,), None without
    events: the most of one allocator, of accelerators where there are any; small tensors on a CPU
    bypass all.
    """
    memory = memory_events(trace)
    on_device = _on_device(memory)
    if accelerators(trace) or on_device.any():
        memory = memory.where(on_device)
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
    Return the bytes that the smallest step's peak has at least, in any order of its ops: its
    largest allocation less older ones that it frees, with a margin of `_RESIZED`. Only allocations
    by ops count: results and copies of arrays vary, as TensorFlow copies those that NumPy does not
    align to 64 bytes.
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


def is_on_device(allocator: str) -> bool:
    """Return whether an allocator is that of a GPU or of a TPU core."""
    return allocator.startswith((GPU, _CORE))


def reports_device_memory(trace: Trace) -> bool:
    """Return whether an accelerator's allocator reports."""
    return bool(_on_device(memory_events(trace)).any())


def memory_events(trace: Trace) -> Events:
    """Return allocations and deallocations, each with the bytes that its allocator then held."""
    return Events.of(trace.plane(HOST)).called(ALLOCATION, "MemoryDeallocation")


def allocators(memory: Events) -> tuple[Ints, list[str]]:
    """Return each event's allocator, shape (n,), and their names; a TPU's is its core's number."""
    code, names = labels(memory, "allocator_name")
    ordinal = np.maximum(
        memory.integers("index_on_host", -1), memory.integers("device_ordinal", -1)
    )
    of_core = (code == 0) & (ordinal >= 0)
    cores = distinct_values(ordinal[of_core])
    code[of_core] = len(names) + np.searchsorted(cores, ordinal[of_core])
    return code, [*names, *(f"{_CORE}{core}" for core in cores.tolist())]


def level(memory: Events) -> Ints:
    """Return the bytes held after each event, shape (n,), with reserved ones: a TPU's stack."""
    return memory.integers("bytes_allocated") + memory.integers("bytes_reserved")


def _origins(memory: Events, is_allocation: Mask) -> Ints:
    """Return the index of the allocation that each deallocation frees, shape (n,), or -1."""
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
    """Return a mask of events of allocators of GPUs and TPU cores, shape (n,)."""
    code, names = allocators(memory)
    return np.array([is_on_device(name) for name in names], bool)[code]


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """Allocations of one op that lived at the peak."""

    op: str
    region: str
    """Output, temp or persist/dynamic."""
    dtype: str
    shape: str
    bytes: int
    """Of all these allocations."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPeak:
    """The largest memory of one allocator in the steps."""

    allocator: str
    step: str
    """With the peak."""
    after_s: float
    """Seconds from the start of the step to the peak."""
    peak_bytes: int
    reserved_bytes: int
    """Part of `peak_bytes` that is not allocations."""
    capacity_bytes: int | None
    """Bytes that the allocator can hold."""
    lifetime_bytes: int
    """Most bytes that it ever held."""
    fragmentation: float | None
    """Share of free memory."""
    growth_bytes: float | None
    """Bytes that it holds more at each step's start, at least, or None if too few steps tell."""
    live: tuple[Live, ...]
    """Allocations of the trace that lived at the peak, the largest first."""
    over_step: tuple[tuple[float, int | None], ...]
    """
    Most bytes in each of `MOMENTS` equal parts of the step, with the part's start in seconds; None
    before the first event.
    """

    @property
    def earlier_bytes(self) -> int:
        """Bytes at the peak that no allocation in the trace explains."""
        return max(self.peak_bytes - self.reserved_bytes - sum(live.bytes for live in self.live), 0)


def memory_peaks(trace: Trace, steps: Steps) -> list[MemoryPeak]:
    """Return the peak of each allocator that held memory in the steps, the largest first."""
    memory = memory_events(trace)
    if not len(memory):
        return []
    code, names = allocators(memory)
    peaks = [
        _peak(names[key], memory.where(code == key).sorted(), steps)
        for key in np.unique(code).tolist()
    ]
    return sorted((peak for peak in peaks if peak), key=lambda peak: -peak.peak_bytes)


def memory_table(peaks: Sequence[MemoryPeak]) -> Table:
    """Tabulate the allocators by their peak in the steps."""
    return Table.of_each(
        "memory",
        peaks,
        [
            (Column("allocator", "allocator"), lambda peak: peak.allocator),
            (Column("peak", "peak", BYTES), lambda peak: peak.peak_bytes),
            (Column("step", "step"), lambda peak: peak.step),
            (Column("into_step_s", "into the step", SECONDS), lambda peak: peak.after_s),
            (Column("capacity", "capacity", BYTES), lambda peak: peak.capacity_bytes),
            (Column("of_capacity", "of capacity", SHARE), _of_capacity),
            (Column("lifetime_peak", "lifetime peak", BYTES), lambda peak: peak.lifetime_bytes),
            (Column("fragmentation", "fragmentation", SHARE), lambda peak: peak.fragmentation),
            (Column("growth", "grows a step at least", BYTES), lambda peak: peak.growth_bytes),
        ],
    )


def _of_capacity(peak: MemoryPeak) -> float | None:
    return min(peak.peak_bytes / peak.capacity_bytes, 1.0) if peak.capacity_bytes else None


def over_step_table(peak: MemoryPeak) -> Table:
    """Tabulate the memory of an allocator over the step of its peak."""
    title = f"memory of {peak.allocator} over {peak.step}, the most in each part of it"
    return Table.of(
        title,
        [Column("into_step_s", "into the step", SECONDS), Column("held", "held", BYTES)],
        peak.over_step,
    )


def live_table(peak: MemoryPeak) -> Table:
    """Tabulate the allocations at an allocator's peak, by size, and the unexplained rest."""
    rest = [(RESERVED, peak.reserved_bytes), (EARLIER, peak.earlier_bytes)]
    unexplained = [
        Live(op=name, region="", dtype="", shape="", bytes=size, count=0)
        for name, size in rest
        if size
    ]
    held = sorted([*peak.live, *unexplained], key=lambda live: -live.bytes)
    whole = max(peak.peak_bytes, sum(live.bytes for live in held))
    return Table.of_each(
        f"memory at the peak of {peak.allocator}",
        held if whole else [],
        [
            (Column("op", "op"), lambda live: live.op),
            (Column("region", "region"), lambda live: live.region),
            (Column("type", "type"), lambda live: live.dtype),
            (Column("shape", "shape"), lambda live: live.shape),
            (Column("allocations", "allocations", COUNT), lambda live: live.count or None),
            (Column("size", "size", BYTES), lambda live: live.bytes),
            (Column("share", "share", SHARE), lambda live: live.bytes / whole),
        ],
    )


def _peak(name: str, memory: Events, steps: Steps) -> MemoryPeak | None:
    """Return an allocator's peak, with memory held at a step's start; events are by time."""
    held, step = level(memory), steps.of(memory.start)
    carried = np.searchsorted(memory.start, steps.start_ps) - 1
    places, of_steps = (
        np.r_[carried, np.flatnonzero(step >= 0)],
        np.r_[np.arange(len(steps)), step[step >= 0]],
    )
    order = np.lexsort((places, of_steps))
    order = order[places[order] >= 0]
    if not order.size:
        return None
    best = order[np.argmax(held[places[order]])]  # the first of equals
    at, in_step = int(places[best]), int(of_steps[best])
    event = memory.where(np.arange(len(memory)) == at)
    available, fragmentation = (
        int(event.integers("bytes_available", -1)[0]),
        event.texts("fragmentation")[0],
    )
    return MemoryPeak(
        allocator=name or "unnamed",
        step=steps.names[in_step],
        after_s=max(int(event.start[0]) - int(steps.start_ps[in_step]), 0) * 1e-12,
        peak_bytes=int(held[at]),
        reserved_bytes=int(event.integers("bytes_reserved")[0]),
        capacity_bytes=int(held[at]) + available if available >= 0 else None,
        lifetime_bytes=max(int(held.max()), int(memory.integers("peak_bytes_in_use").max())),
        fragmentation=_share(fragmentation),
        growth_bytes=_growth(held[carried[carried >= 0]]),
        live=_live(memory.where(np.arange(len(memory)) <= at)),
        over_step=_over_step(
            memory, held, int(steps.start_ps[in_step]), int(steps.end_ps[in_step])
        ),
    )


def _growth(at_starts: Ints) -> float | None:
    """Return the lower bound of the growth from step to step, at least 0, or None."""
    slope = slope_with_interval(range(len(at_starts)), at_starts.tolist(), _CONFIDENCE)
    return None if slope is None else max(slope.low, 0.0)


def _over_step(
    memory: Events, held: Ints, start_ps: int, end_ps: int
) -> tuple[tuple[float, int | None], ...]:
    """Return the memory at the start of each part of a step, or the most after an event in it."""
    edges = np.linspace(start_ps, end_ps, MOMENTS + 1)
    carried = np.searchsorted(memory.start, edges[:-1], "right") - 1
    most = np.where(carried >= 0, held[np.maximum(carried, 0)], -1)
    part = np.searchsorted(edges, memory.start, "right") - 1
    inside = (part >= 0) & (part < MOMENTS)
    np.maximum.at(most, part[inside], held[inside])
    begins = ((edges[:-1] - start_ps) * 1e-12).tolist()
    return tuple(
        (begin, size if size >= 0 else None)
        for begin, size in zip(begins, most.tolist(), strict=True)
    )


def _live(memory: Events) -> tuple[Live, ...]:
    """Return the allocations of these events, sorted by time, that no later event frees."""
    _, last = np.unique(memory.integers("addr")[::-1], return_index=True)
    events = Events(memory.plane, memory.rows[::-1][last]).called(ALLOCATION)
    sizes: dict[tuple[str, ...], list[int]] = {}
    stats = [events.texts(stat) for stat in ("tf_op", "region_type", "data_type", "shape")]
    for key, size in zip(
        zip(*stats, strict=True), events.integers("allocation_bytes").tolist(), strict=True
    ):
        sizes.setdefault(key, []).append(size)
    found = [
        Live(
            op=op, region=region, dtype=_dtype(dtype), shape=shape, bytes=sum(each), count=len(each)
        )
        for (op, region, dtype, shape), each in sizes.items()
    ]
    return tuple(sorted(found, key=lambda live: -live.bytes))


def _dtype(text: str) -> str:
    """Return the name of a DataType's number, and any other text unchanged."""
    return _DTYPES[int(text)] if text.isdecimal() and int(text) < len(_DTYPES) else text


def _share(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= 1 else None
