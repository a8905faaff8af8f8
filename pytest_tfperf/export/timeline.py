"""Timeline of the traces of one run: their planes, steps and memory as processes with tracks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import TypeVar

import numpy as np

from pytest_tfperf.export.clocks import TraceClock, clock_shifts, steps_of
from pytest_tfperf.export.event_args import Args, args_of, args_of_names
from pytest_tfperf.export.flows import FlowEnds, Flows, flow_ids
from pytest_tfperf.export.lanes import lanes_of, nested_lanes
from pytest_tfperf.export.tracks import Counter, Process, Slices, Track
from pytest_tfperf.facts.breakdown import break_down
from pytest_tfperf.facts.memory import allocators, memory_events
from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.trace.devices import gpus
from pytest_tfperf.trace.event_columns import batches
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.logdir import host_of
from pytest_tfperf.trace.xspace import HOST, Plane, Trace, read_trace

_BATCH = 50_000  # slices at a time: their stats take about 100 MB as Python values
_Cell = TypeVar("_Cell")


def processes_of(traces: Sequence[Path]) -> Iterator[Process]:
    """
    Make the processes of the traces of one run, one trace for each host.

    A trace is held only while its processes are in use. `clock_shifts` aligns several hosts.

    Raises:
        TraceError: If a trace cannot be read.
    """
    read = lru_cache(maxsize=1)(read_trace)
    shifts = clock_shifts([TraceClock.of(read(path)) for path in traces])
    ids = count(1)
    for path, shift in zip(traces, shifts, strict=True):
        trace = read(path)
        prefix = f"{_host_name(trace, path)} " if len(traces) > 1 else ""
        yield from _processes(trace, shift, prefix, ids)


def _host_name(trace: Trace, path: Path) -> str:
    return trace.hostnames[0] if trace.hostnames else host_of(path)


def _processes(trace: Trace, shift: int, prefix: str, ids: Iterator[int]) -> Iterator[Process]:
    """
    Make the processes of one trace.

    Args:
        trace: The trace.
        shift: Picoseconds to add to its times.
        prefix: Text before the names of the processes.
        ids: Ids that are not in use yet.
    """
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
    """
    Make one or more tracks for each line that has events.

    Args:
        plane: The plane.
        shift: Picoseconds to add to its times.
        starts: Flows that start in the plane.
        ends: Flows that end in the plane.
        ids: Ids that are not in use yet.
    """
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
    """
    Yield the slices of one lane of a batch.

    Args:
        together: The function that reads a batch.
        first: The first lane of the batch.
        last: The lane behind its last one.
        places: Those of the lane's slices in the batch.
    """
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
    """
    Make the process of the steps, each with its parts in milliseconds.

    Args:
        trace: The trace.
        steps: Its steps.
        shift: Picoseconds to add to its times.
        prefix: Text before the name of the process.
        ids: Ids that are not in use yet.
    """
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
    """
    Make the slices of a track, in batches.

    Args:
        events: Events of the track.
        shift: Picoseconds to add to their times.
        starts: Flows that start in the plane.
        ends: Flows that end in the plane.
        shared: Arguments that all events of a name share.
    """
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
