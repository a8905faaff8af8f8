"""Find the peak of each allocator in the steps, and the allocations that lived then."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_tfperf.facts.memory import ALLOCATION, allocators, level, memory_events
from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.quantities import BYTES, COUNT, SECONDS, SHARE
from pytest_tfperf.stats.slope import slope_with_interval
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.xspace import Trace
from pytest_tfperf.values import Column, Table

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """Allocations of one op that lived at the peak."""

    op: str
    """Name of the op."""
    region: str
    """Output, temp or persist/dynamic."""
    dtype: str
    """Name of the dtype."""
    shape: str
    """Shape, as text."""
    bytes: int
    """Bytes of all these allocations."""
    count: int
    """Number of allocations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPeak:
    """The largest memory of one allocator in the steps."""

    allocator: str
    """Name of the allocator."""
    step: str
    """Name of the step with the peak."""
    after_s: float
    """Seconds from the start of the step to the peak."""
    peak_bytes: int
    """Bytes held at the peak."""
    reserved_bytes: int
    """Part of `peak_bytes` that is not allocations."""
    capacity_bytes: int | None
    """Bytes that the allocator can hold."""
    lifetime_bytes: int
    """Most bytes that it ever held."""
    fragmentation: float | None
    """Share of free memory that is fragmented, or None."""
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
    columns = [
        Column("allocator", "allocator"),
        Column("peak", "peak", BYTES),
        Column("step", "step"),
        Column("into_step_s", "into the step", SECONDS),
        Column("capacity", "capacity", BYTES),
        Column("of_capacity", "of capacity", SHARE),
        Column("lifetime_peak", "lifetime peak", BYTES),
        Column("fragmentation", "fragmentation", SHARE),
        Column("growth", "grows a step at least", BYTES),
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
            peak.growth_bytes,
        )
        for peak in peaks
    ]
    return Table.of("memory", columns, rows)


def over_step_table(peak: MemoryPeak) -> Table:
    """Tabulate the memory of an allocator over the step of its peak."""
    title = f"memory of {peak.allocator} over {peak.step}, the most in each part of it"
    return Table.of(
        title,
        [Column("into_step_s", "into the step", SECONDS), Column("held", "held", BYTES)],
        peak.over_step,
    )


def live_table(peak: MemoryPeak) -> Table:
    """
    Tabulate the allocations at an allocator's peak, the largest first, and the unexplained rest.
    """
    columns = [
        Column("op", "op"),
        Column("region", "region"),
        Column("type", "type"),
        Column("shape", "shape"),
        Column("allocations", "allocations", COUNT),
        Column("size", "size", BYTES),
        Column("share", "share", SHARE),
    ]
    records = _live_records(peak)
    whole = max(peak.peak_bytes, sum(record["size"] for record in records))
    for record in records:
        record["share"] = record["size"] / whole if whole else None
    shown = sorted(records, key=lambda record: -record["size"]) if whole else []
    return Table.of_records(f"memory at the peak of {peak.allocator}", columns, shown)


def _live_records(peak: MemoryPeak) -> list[dict[str, Any]]:
    """List the allocations at a peak, and the sizes that no allocation explains."""
    records: list[dict[str, Any]] = [
        {
            "op": live.op,
            "region": live.region,
            "type": live.dtype,
            "shape": live.shape,
            "allocations": live.count,
            "size": live.bytes,
        }
        for live in peak.live
    ]
    unexplained = {"region": "", "type": "", "shape": "", "allocations": None}
    rest = [(RESERVED, peak.reserved_bytes), (EARLIER, peak.earlier_bytes)]
    return records + [{**unexplained, "op": name, "size": size} for name, size in rest if size]


def _peak(name: str, memory: Events, steps: Steps) -> MemoryPeak | None:
    """
    Return the peak of one allocator, whose events are sorted; memory held at a step's start counts
    in it.
    """
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
    """
    Return the live allocations of these events, sorted by time: those whose address has no later
    deallocation.
    """
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
    return _DTYPES[int(text)] if text.isdigit() and int(text) < len(_DTYPES) else text


def _share(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= 1 else None
