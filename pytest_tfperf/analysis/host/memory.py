"""How much memory a step needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_tfperf.analysis.steps.detect import Steps
from pytest_tfperf.metrics import BYTES, COUNT, SECONDS, SHARE
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.stat_columns import Mask
from pytest_tfperf.trace.stats import labels
from pytest_tfperf.trace.xspace import HOST, Trace
from pytest_tfperf.values import Column, Table

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
    peaks: Ints = np.max(
        [_peaks(memory.where(code == key).sorted(), steps) for key in np.unique(code)], axis=0
    )
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
    ordinal = np.maximum(
        memory.integers("index_on_host", -1), memory.integers("device_ordinal", -1)
    )
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


RESERVED = "reserved for the programs' stack"


EARLIER = "allocated before the trace began, or never told"


MOMENTS = 32


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """`count` allocations of an op that lived at the peak, `bytes` in all; `region` is output, temp or persist/dynamic."""

    op: str
    region: str
    dtype: str
    shape: str
    bytes: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPeak:
    """
    The most bytes that an allocator held in the steps, `after_s` seconds into `step`; `reserved_bytes` of them are no allocations.

    `lifetime_bytes` is the most that it ever held, `capacity_bytes` what it could hold; `fragmentation` is None where it is not told.
    `live` are the allocations that the trace shows and that lived then, the largest first. `over_step` is the most that it held in each
    of `MOMENTS` equal parts of the step, with the seconds at which the part begins; None before the first event that tells.
    """

    allocator: str
    step: str
    after_s: float
    peak_bytes: int
    reserved_bytes: int
    capacity_bytes: int | None
    lifetime_bytes: int
    fragmentation: float | None
    live: tuple[Live, ...]
    over_step: tuple[tuple[float, int | None], ...]

    @property
    def earlier_bytes(self) -> int:
        """What no allocation in the trace explains."""
        return max(self.peak_bytes - self.reserved_bytes - sum(live.bytes for live in self.live), 0)


def memory_peaks(trace: Trace, steps: Steps) -> list[MemoryPeak]:
    """The peak of each allocator that held anything in the steps, the largest first."""
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
    """The allocators by their peak in the steps."""
    columns = [
        Column("allocator", "allocator"),
        Column("peak", "peak", BYTES),
        Column("step", "step"),
        Column("into_step_s", "into the step", SECONDS),
        Column("capacity", "capacity", BYTES),
        Column("of_capacity", "of capacity", SHARE),
        Column("lifetime_peak", "lifetime peak", BYTES),
        Column("fragmentation", "fragmentation", SHARE),
    ]
    rows = [
        (
            peak.allocator,
            peak.peak_bytes,
            peak.step,
            peak.after_s,
            peak.capacity_bytes,
            min(peak.peak_bytes / peak.capacity_bytes, 1.0) if peak.capacity_bytes else None,
            peak.lifetime_bytes,
            peak.fragmentation,
        )
        for peak in peaks
    ]
    return Table.of("memory", columns, rows)


def over_step_table(peak: MemoryPeak) -> Table:
    """What an allocator held over the step of its peak."""
    title = f"memory of {peak.allocator} over {peak.step}, the most in each part of it"
    return Table.of(
        title,
        [Column("into_step_s", "into the step", SECONDS), Column("held", "held", BYTES)],
        peak.over_step,
    )


def live_table(peak: MemoryPeak) -> Table:
    """What lived at an allocator's peak, the largest first, with what no allocation in the trace explains."""
    columns = [
        Column("op", "op"),
        Column("region", "region"),
        Column("type", "type"),
        Column("shape", "shape"),
        Column("allocations", "allocations", COUNT),
        Column("size", "size", BYTES),
        Column("share", "share", SHARE),
    ]
    rest = [(RESERVED, peak.reserved_bytes), (EARLIER, peak.earlier_bytes)]
    rows: list[tuple[Any, ...]] = [
        (live.op, live.region, live.dtype, live.shape, live.count, live.bytes) for live in peak.live
    ]
    rows += [(name, "", "", "", None, size) for name, size in rest if size]
    whole = max(peak.peak_bytes, sum(row[-1] for row in rows))
    return Table.of(
        f"memory at the peak of {peak.allocator}",
        columns,
        [(*row, row[-1] / whole) for row in sorted(rows, key=lambda row: -row[-1]) if whole],
    )


def _peak(name: str, memory: Events, steps: Steps) -> MemoryPeak | None:
    """Of one allocator, whose events are sorted; what it held when a step began counts in it."""
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
        live=_live(memory.where(np.arange(len(memory)) <= at)),
        over_step=_over_step(
            memory, held, int(steps.start_ps[in_step]), int(steps.end_ps[in_step])
        ),
    )


def _over_step(
    memory: Events, held: Ints, start_ps: int, end_ps: int
) -> tuple[tuple[float, int | None], ...]:
    """What was held as each part of a step began, or the most after an event in it."""
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
    """What of these events, sorted by time, was allocated and not deallocated: the last event of an address is an allocation."""
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
    """The name of a DataType's number; any other text as it is."""
    return _DTYPES[int(text)] if text.isdigit() and int(text) < len(_DTYPES) else text


def _share(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= 1 else None
