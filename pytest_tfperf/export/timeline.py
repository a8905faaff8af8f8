"""Timeline of the traces of one run: their planes, steps and memory as processes with tracks."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import TypeVar

import numpy as np

from pytest_tfperf.errors import TraceError
from pytest_tfperf.export.tracks import (
    Args,
    Counter,
    Process,
    Slices,
    Track,
    args_of,
    args_of_names,
)
from pytest_tfperf.facts.memory import allocators, memory_events
from pytest_tfperf.facts.parts import break_down
from pytest_tfperf.facts.steps import Steps, find_steps, on_the_device
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.devices import gpus, stream_events
from pytest_tfperf.trace.event_decoder import batches
from pytest_tfperf.trace.events import Events, joined, parents
from pytest_tfperf.trace.logdir import host_of
from pytest_tfperf.trace.xspace import HOST, Plane, Trace, read_trace

_BATCH = 50_000  # slices at a time: their stats take about 100 MB as Python values
_Cell = TypeVar("_Cell")


@dataclass(frozen=True, slots=True)
class TraceClock:
    """Times of one trace that align it with others."""

    origin_ns: int
    """Nanoseconds since 1970 of the trace's origin."""
    first_ps: int
    """Start of the earliest event."""
    steps: dict[str, int]
    """Start of each step in picoseconds, by the step's name."""

    @classmethod
    def of(cls, trace: Trace) -> TraceClock:
        """Read the clock of a trace; one without steps has none."""
        steps = steps_of(trace)
        starts = dict(zip(steps.names, steps.start_ps.tolist(), strict=True)) if steps else {}
        first_ps = min(
            (int(plane.start_ps.min()) for plane in trace.planes if plane.start_ps.size), default=0
        )
        return cls(trace.origin_ns, first_ps, starts)


def steps_of(trace: Trace) -> Steps | None:
    """Find the steps as the devices ran them, None if the trace has no step."""
    try:
        return on_the_device(trace, find_steps(trace))
    except TraceError:
        return None


def clock_shifts(clocks: Sequence[TraceClock]) -> list[int]:
    """
    Return the picoseconds to add to the times of each trace, which align them.

    The first step that all traces have begins at one time, and no time is negative. Without such a
    step the hosts' clocks decide.
    """
    first = clocks[0]
    common = [name for name in first.steps if all(name in clock.steps for clock in clocks)]
    if common:
        shifts = [first.steps[common[0]] - clock.steps[common[0]] for clock in clocks]
    else:
        shifts = [(clock.origin_ns - first.origin_ns) * 1000 for clock in clocks]
    earliest = min(clock.first_ps + shift for clock, shift in zip(clocks, shifts, strict=True))
    return [shift - min(earliest, 0) for shift in shifts]


@dataclass(frozen=True, slots=True, eq=False)
class Flows:
    """Pairs of a launch and its work; the id of a pair is `first_id` plus its index."""

    launch: Ints
    """Rows of the host's plane, of shape (n_pairs,)."""
    work: Ints
    """Rows of the device's plane, of shape (n_pairs,)."""
    first_id: int
    """First id of the arrows."""

    @classmethod
    def of(cls, launches: Events, device: Plane, first_id: int) -> Flows:
        """
        Pair launches and work with one `correlation_id`.

        The last of several launches with the same id counts, as in XProf.
        """
        work = stream_events(device).having("correlation_id")
        row = joined(
            work.integers("correlation_id"), launches.integers("correlation_id"), launches.rows
        )
        return cls(row[row >= 0], work.rows[row >= 0], first_id)

    def ids_at(self, rows: Ints, end: Ints) -> dict[int, list[int]]:
        """Return ids of flows by index of row; `end` is `launch` or `work`, of that plane."""
        order = np.argsort(end, kind="stable")
        first = np.searchsorted(end[order], rows, side="left")
        last = np.searchsorted(end[order], rows, side="right")
        return {
            place: [self.first_id + int(flow) for flow in order[first[place] : last[place]]]
            for place in np.flatnonzero(last > first).tolist()
        }


FlowEnds = Sequence[tuple[Flows, Ints]]
"""Flows, and their rows in one plane."""


def flow_ids(rows: Ints, ends: FlowEnds) -> dict[int, list[int]]:
    """Find the ids of all flows at these rows, by index of the row."""
    found: dict[int, list[int]] = {}
    for flows, end in ends:
        for place, ids in flows.ids_at(rows, end).items():
            found.setdefault(place, []).extend(ids)
    return found


def lanes_of(events: Events) -> Iterator[Events]:
    """Divide the events of a line into lanes, each sorted by start and then by length."""
    if not len(events):
        return
    events = Events(events.plane, events.rows[np.lexsort((-events.end, events.start))])
    if len(events) == 1 or _all_nest(events):
        yield events
        return
    for lane in nested_lanes(events.start.tolist(), events.end.tolist(), range(len(events))):
        yield Events(events.plane, events.rows[lane])


def nested_lanes(
    begins: Sequence[int], ends: Sequence[int], places: Sequence[int]
) -> list[list[int]]:
    """
    Divide slices into lanes: each goes to the first lane in which it nests.

    Of n slices each takes a time of log n, in as many lanes as they may need. `places` are indices
    of slices, as those of the lanes are, sorted by begin, the longest first.
    """
    lanes: list[list[int]] = []
    open_ends: list[list[int]] = []  # of each lane, the innermost last
    closing: list[tuple[int, int]] = []  # all open ends with their lanes, the next one first
    tops = _FirstAtLeast()
    for place in places:
        begin, end = begins[place], ends[place]
        while closing and closing[0][0] <= begin and closing[0][0] < end:
            _, lane = heapq.heappop(closing)
            open_ends[lane].pop()
            tops.put(lane, open_ends[lane][-1] if open_ends[lane] else math.inf)
        lane = tops.first(end)
        if lane == len(lanes):
            lanes.append([])
            open_ends.append([])
        lanes[lane].append(place)
        open_ends[lane].append(end)
        tops.put(lane, end)
        heapq.heappush(closing, (end, lane))
    return lanes


class _FirstAtLeast:
    """
    Numbers at places from 0 on, infinite at first, and the first place with at least some number.

    A binary tree holds the largest number of each half, quarter, and so on, the root at 1.
    """

    def __init__(self) -> None:
        self._n_leaves = 1
        self._largest: list[float] = [math.inf, math.inf]

    def put(self, place: int, number: float) -> None:
        """Change the number at a place."""
        if place >= self._n_leaves:
            self._double()
        largest, node = self._largest, place + self._n_leaves
        largest[node] = number
        while node > 1:
            node //= 2
            largest[node] = max(largest[2 * node], largest[2 * node + 1])

    def first(self, number: float) -> int:
        """Return the first place whose number is at least this one."""
        if self._largest[1] < number:
            return self._n_leaves
        node = 1
        while node < self._n_leaves:
            node *= 2
            node += self._largest[node] < number
        return node - self._n_leaves

    def _double(self) -> None:
        leaves = self._largest[self._n_leaves :] + [math.inf] * self._n_leaves
        self._n_leaves *= 2
        self._largest = [math.inf] * self._n_leaves + leaves
        for node in range(self._n_leaves - 1, 0, -1):
            self._largest[node] = max(self._largest[2 * node], self._largest[2 * node + 1])


def _all_nest(events: Events) -> bool:
    """Return whether no event overlaps the next one with the same parent."""
    up = parents(events)
    order = np.argsort(up, kind="stable")
    start, end = events.start[order], events.end[order]
    return not ((np.diff(up[order]) == 0) & (start[1:] < end[:-1])).any()


def processes_of(traces: Sequence[Path]) -> Iterator[Process]:
    """
    Make the processes of the traces of one run, one trace for each host.

    A trace is held only while its processes are in use. `clock_shifts` aligns several hosts.
    """
    read = lru_cache(maxsize=1)(read_trace)
    shifts = clock_shifts([TraceClock.of(read(path)) for path in traces])
    ids = count(1)
    for path, shift in zip(traces, shifts, strict=True):
        trace = read(path)
        host = trace.hostnames[0] if trace.hostnames else host_of(path)
        prefix = f"{host} " if len(traces) > 1 else ""
        yield from _processes(trace, shift, prefix, ids)


def _processes(trace: Trace, shift: int, prefix: str, ids: Iterator[int]) -> Iterator[Process]:
    """Make the processes of one trace."""
    steps = steps_of(trace)
    if steps is not None:
        yield _step_process(trace, steps, shift, prefix, ids)
    host = trace.plane(HOST)
    launches = Events.of(host).having("correlation_id")
    flows = {device.name: Flows.of(launches, device, next(ids) << 32) for device in gpus(trace)}
    for plane in trace.planes:
        starts = [(flow, flow.launch) for flow in flows.values()] if plane is host else []
        ends = [(flows[plane.name], flows[plane.name].work)] if plane.name in flows else []
        if plane.start_ps.size:
            yield Process(
                next(ids),
                prefix + plane.name,
                tuple(_tracks(plane, shift, starts, ends, ids)),
                tuple(_memory_counters(trace, shift, ids)) if plane is host else (),
            )


def _tracks(
    plane: Plane, shift: int, starts: FlowEnds, ends: FlowEnds, ids: Iterator[int]
) -> Iterator[Track]:
    """Make one or more tracks for each line that has events."""
    lanes = [
        (_numbered(line.name, number), lane)
        for line in plane.lines
        for number, lane in enumerate(lanes_of(Events(plane, np.arange(line.first, line.last))))
    ]
    read = partial(_slices, shift=shift, starts=starts, ends=ends, shared=args_of_names(plane))
    together = lru_cache(maxsize=1)(
        lambda first, last: next(read(_joined([lane for _, lane in lanes[first:last]])))
    )
    # one lane alone may be small
    for first, last in batches([len(lane) for _, lane in lanes], _BATCH):
        begin = 0
        for name, lane in lanes[first:last]:
            end = begin + len(lane)
            one = partial(_part, together, first, last, slice(begin, end))
            yield Track(next(ids), name, one if last - first > 1 else partial(read, lane))
            begin = end


def _joined(lanes: Sequence[Events]) -> Events:
    return Events(lanes[0].plane, np.concatenate([lane.rows for lane in lanes]))


def _part(
    together: Callable[[int, int], Slices], first: int, last: int, places: slice
) -> Iterator[Slices]:
    """Yield the slices of one lane of a batch."""
    whole, begin = together(first, last), places.start
    yield Slices(
        whole.start_ps[places],
        whole.end_ps[places],
        whole.names[places],
        whole.args[places],
        *(
            {n - begin: flows[n] for n in range(begin, places.stop) if n in flows}
            for flows in (whole.starts, whole.ends)
        ),
    )


def _numbered(name: str, lane: int) -> str:
    return f"{name} ({lane + 1})" if lane else name


def _step_process(
    trace: Trace, steps: Steps, shift: int, prefix: str, ids: Iterator[int]
) -> Process:
    """Make the process of the steps, each with its parts in milliseconds."""
    parts = {
        f"{part} (ms)": np.round(column * 1e-9, 9).tolist()
        for part, column in break_down(trace, steps).parts_ps.items()
    }
    args: list[Args] = [
        {name: column[place] for name, column in parts.items() if column[place]}
        for place in range(len(steps))
    ]
    begins, ends = (steps.start_ps + shift).tolist(), (steps.end_ps + shift).tolist()
    order = sorted(range(len(steps)), key=lambda place: (begins[place], -ends[place]))
    tracks = []
    for lane, places in enumerate(nested_lanes(begins, ends, order)):
        slices = Slices(
            _taken(begins, places),
            _taken(ends, places),
            _taken(steps.names, places),
            _taken(args, places),
        )
        name = _numbered(f"from {steps.source}", lane)
        tracks.append(Track(next(ids), name, partial(iter, (slices,))))
    return Process(next(ids), f"{prefix}Steps", tuple(tracks))


def _taken(column: Sequence[_Cell], places: list[int]) -> list[_Cell]:
    return [column[place] for place in places]


def _slices(
    events: Events, shift: int, starts: FlowEnds, ends: FlowEnds, shared: dict[str, Args]
) -> Iterator[Slices]:
    """Make the slices of a track, in batches."""
    for begin in range(0, len(events), _BATCH):
        part = Events(events.plane, events.rows[begin : begin + _BATCH])
        yield Slices(
            (part.start + shift).tolist(),
            (part.end + shift).tolist(),
            part.names,
            args_of(part, shared),
            flow_ids(part.rows, starts),
            flow_ids(part.rows, ends),
        )


def _memory_counters(trace: Trace, shift: int, ids: Iterator[int]) -> Iterator[Counter]:
    """Count the bytes that each allocator has given out, after each of its events."""
    memory = memory_events(trace).sorted()
    code, names = allocators(memory)
    for key in sorted(np.unique(code).tolist(), key=names.__getitem__):
        mine = memory.where(code == key)
        yield Counter(
            next(ids),
            f"memory {names[key]}".rstrip(),
            (mine.start + shift).tolist(),
            mine.integers("bytes_allocated").tolist(),
        )
