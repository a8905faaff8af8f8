"""The stats of events as the arguments that viewers show beside a slice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import TypeVar

import numpy as np

from pytest_tfperf.analysis.host.memory import allocators, memory_events
from pytest_tfperf.analysis.steps.breakdown import break_down
from pytest_tfperf.analysis.steps.detect import Steps, find_steps
from pytest_tfperf.analysis.steps.on_devices import on_the_device
from pytest_tfperf.errors import TraceError
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.devices import gpus, stream_events
from pytest_tfperf.trace.events import Events, joined, metadata_texts
from pytest_tfperf.trace.nesting import parents
from pytest_tfperf.trace.stat_columns import Stats, stat_content
from pytest_tfperf.trace.xspace import HOST, Plane, Trace, read_trace

Args = dict[str, "int | float | str"]

_DOUBLE = 2  # XStat.double_value, xplane.proto
_LONGEST = 200  # characters; what an event's name stands for may be a whole program, and would be repeated with each event


def args_of(events: Events, shared: dict[str, Args]) -> list[Args]:
    """The stats of each event by name, besides those that all events of its name share."""
    stats = Stats.read(events.plane, events.rows)
    plane = events.plane
    result = [dict(shared.get(name, {})) for name in events.names]
    order = np.argsort(stats.owner, kind="stable")
    columns = (
        stats.owner,
        stats.key,
        stats.kind,
        stats.value,
        stats.value.view(np.float64),
        stats.length,
    )
    for owner, key, kind, value, double, length in zip(
        *(column[order].tolist() for column in columns), strict=True
    ):
        name = plane.stat_names.get(key, f"stat {key}")
        content = double if kind == _DOUBLE else stat_content(plane, kind, value, length)
        result[owner][name] = f"{length} bytes" if isinstance(content, bytes) else content
    return result


def args_of_names(plane: Plane) -> dict[str, Args]:
    """The short stats of the plane's event metadata, by the events' names."""
    found: dict[str, Args] = {}
    for stat in sorted(set(plane.stat_names.values())) if plane.metadata_stats else ():
        for name, text in metadata_texts(plane, stat).items():
            if len(text) <= _LONGEST:
                found.setdefault(name, {})[stat] = text
    return found


_Cell = TypeVar("_Cell")


_BATCH = 50_000  # slices at a time: their stats take some 100 MB as Python values


@dataclass(frozen=True, slots=True)
class Slices:
    """
    Some slices of a track by their start, of equal ones the longer first: columns of one length, times in picoseconds.

    `starts` and `ends` hold the ids of the flows that start and end at a slice, by its place.
    """

    start_ps: Sequence[int]
    end_ps: Sequence[int]
    names: Sequence[str]
    args: Sequence[Args]
    starts: dict[int, list[int]] = field(default_factory=dict)
    ends: dict[int, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Track:
    """A thread or stream; `id` is unique in the whole export. Its slices nest."""

    id: int
    name: str
    slices: Callable[[], Iterator[Slices]]


@dataclass(frozen=True, slots=True)
class Counter:
    """A number over time: of shape (n,), times in picoseconds."""

    id: int
    name: str
    times_ps: Sequence[int]
    values: Sequence[int]


@dataclass(frozen=True, slots=True)
class Process:
    """A plane of a host, or the steps of one; `id` is unique in the whole export."""

    id: int
    name: str
    tracks: tuple[Track, ...]
    counters: tuple[Counter, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Flows:
    """From host launches to the device's work: row by row of both planes, and an id for each pair."""

    launch: Ints
    work: Ints
    first_id: int

    def at(self, rows: Ints, mine: Ints) -> dict[int, list[int]]:
        """The ids of the flows of these rows, by place; `mine` is the column of this plane."""
        order = np.argsort(mine, kind="stable")
        begin, end = (
            np.searchsorted(mine[order], rows, side="left"),
            np.searchsorted(mine[order], rows, side="right"),
        )
        return {
            place: [self.first_id + int(flow) for flow in order[begin[place] : end[place]]]
            for place in np.flatnonzero(end > begin).tolist()
        }


_Ends = Sequence[
    tuple[_Flows, Ints]
]  # flows, and the rows of one plane that are at one end of them


def processes_of(traces: Sequence[Path]) -> Iterator[Process]:
    """
    The processes of the traces of one run, one trace for each host; a trace is held only while its processes are in use.

    No time is negative. Several hosts stand by one clock in which the first step that they have in common begins at the same time.

    Raises:
        TraceError: If a trace cannot be read.
    """
    read = lru_cache(maxsize=1)(read_trace)
    shifts = _shifts([_Clock.of(read(path)) for path in traces])
    ids = count(1)
    for path, shift in zip(traces, shifts, strict=True):
        trace = read(path)
        prefix = (
            f"{(trace.hostnames or (path.name.removesuffix('.xplane.pb'),))[0]} "
            if len(traces) > 1
            else ""
        )
        yield from _processes(trace, shift, prefix, ids)


@dataclass(frozen=True, slots=True)
class _Clock:
    """What is needed to bring a trace to a common time: its origin, its earliest event, and when its steps began."""

    origin_ns: int
    first_ps: int
    steps: dict[str, int]

    @classmethod
    def of(cls, trace: Trace) -> _Clock:
        steps = _steps(trace)
        begins = dict(zip(steps.names, steps.start_ps.tolist(), strict=True)) if steps else {}
        return cls(
            trace.origin_ns,
            min(
                (int(plane.start_ps.min()) for plane in trace.planes if plane.start_ps.size),
                default=0,
            ),
            begins,
        )


def _shifts(clocks: Sequence[_Clock]) -> list[int]:
    """Picoseconds to add to the times of each trace."""
    first = clocks[0]
    common = [name for name in first.steps if all(name in clock.steps for clock in clocks)]
    shifts = [
        first.steps[common[0]] - clock.steps[common[0]]
        if common
        else (clock.origin_ns - first.origin_ns) * 1000
        for clock in clocks
    ]
    earliest = min(clock.first_ps + shift for clock, shift in zip(clocks, shifts, strict=True))
    return [shift - min(earliest, 0) for shift in shifts]


def _steps(trace: Trace) -> Steps | None:
    try:
        return on_the_device(trace, find_steps(trace))
    except TraceError:
        return None


def _processes(trace: Trace, shift: int, prefix: str, ids: Iterator[int]) -> Iterator[Process]:
    steps = _steps(trace)
    if steps is not None:
        yield _step_process(trace, steps, shift, prefix, ids)
    host = trace.plane(HOST)
    launches = Events.of(host).having("correlation_id")
    flows = {device.name: _flows(launches, device, next(ids) << 32) for device in gpus(trace)}
    for plane in trace.planes:
        starts = [(flow, flow.launch) for flow in flows.values()] if plane is host else []
        ends = [(flows[plane.name], flows[plane.name].work)] if plane.name in flows else []
        if plane.start_ps.size:
            yield Process(
                next(ids),
                prefix + plane.name,
                tuple(_tracks(plane, shift, starts, ends, ids)),
                tuple(_memory(trace, shift, ids)) if plane is host else (),
            )


def _tracks(
    plane: Plane, shift: int, starts: _Ends, ends: _Ends, ids: Iterator[int]
) -> Iterator[Track]:
    """The tracks of a plane, one or more for each line that has events."""
    shared = args_of_names(plane)
    for number, line in enumerate(plane.lines):
        for lane, events in enumerate(_lanes(Events.of(plane).on_line(number))):
            yield Track(
                next(ids),
                _numbered(line.name, lane),
                partial(_slices, events, shift, starts, ends, shared),
            )


def _numbered(name: str, lane: int) -> str:
    return f"{name} ({lane + 1})" if lane else name


def _step_process(
    trace: Trace, steps: Steps, shift: int, prefix: str, ids: Iterator[int]
) -> Process:
    """The steps as the analysis sees them, each with its parts in milliseconds."""
    parts = {
        f"{part} (ms)": np.round(column * 1e-9, 9).tolist()
        for part, column in break_down(trace, steps).parts_ps.items()
    }
    args = [
        {name: column[place] for name, column in parts.items() if column[place]}
        for place in range(len(steps))
    ]
    begins, ends = (steps.start_ps + shift).tolist(), (steps.end_ps + shift).tolist()
    order = sorted(range(len(steps)), key=lambda place: (begins[place], -ends[place]))
    tracks = []
    for lane, places in enumerate(_nested(begins, ends, order)):
        slices = Slices(
            _taken(begins, places),
            _taken(ends, places),
            _taken(steps.names, places),
            _taken(args, places),
        )
        tracks.append(
            Track(next(ids), _numbered(f"from {steps.source}", lane), partial(iter, (slices,)))
        )
    return Process(next(ids), f"{prefix}Steps", tuple(tracks))


def _taken(column: Sequence[_Cell], places: list[int]) -> list[_Cell]:
    return [column[place] for place in places]


def _flows(launches: Events, device: Plane, first_id: int) -> _Flows:
    """Launches and what they launched have one `correlation_id`; of launches with the same one the last counts, as in XProf."""
    work = stream_events(device).having("correlation_id")
    row = joined(
        work.integers("correlation_id"), launches.integers("correlation_id"), launches.rows
    )
    return _Flows(row[row >= 0], work.rows[row >= 0], first_id)


def _lanes(events: Events) -> Iterator[Events]:
    """The events of a line in the order of drawing, those that overlap others without nesting apart."""
    if not len(events):
        return
    events = Events(events.plane, events.rows[np.lexsort((-events.end, events.start))])
    if _nests(events):
        yield events
        return
    for places in _nested(events.start.tolist(), events.end.tolist(), list(range(len(events)))):
        yield Events(events.plane, events.rows[places])


def _nests(events: Events) -> bool:
    """Whether no event overlaps the next one with the same parent."""
    up = parents(events)
    order = np.argsort(up, kind="stable")
    start, end = events.start[order], events.end[order]
    return not ((np.diff(up[order]) == 0) & (start[1:] < end[:-1])).any()


def _nested(begins: Sequence[int], ends: Sequence[int], places: list[int]) -> Iterator[list[int]]:
    """Places, which are in the order of drawing, in groups within which all nest."""
    while places:
        kept: list[int] = []
        rest: list[int] = []
        open_ends: list[int] = []
        for place in places:
            while open_ends and open_ends[-1] <= begins[place] and open_ends[-1] < ends[place]:
                open_ends.pop()
            if open_ends and open_ends[-1] < ends[place]:
                rest.append(place)
            else:
                kept.append(place)
                open_ends.append(ends[place])
        yield kept
        places = rest


def _slices(
    events: Events, shift: int, starts: _Ends, ends: _Ends, shared: dict[str, Args]
) -> Iterator[Slices]:
    for begin in range(0, len(events), _BATCH):
        part = Events(events.plane, events.rows[begin : begin + _BATCH])
        flows = (_flows_at(part.rows, starts), _flows_at(part.rows, ends))
        yield Slices(
            (part.start + shift).tolist(),
            (part.end + shift).tolist(),
            part.names,
            args_of(part, shared),
            *flows,
        )


def _flows_at(rows: Ints, flows: _Ends) -> dict[int, list[int]]:
    """The ids of the flows of these rows, by place."""
    found: dict[int, list[int]] = {}
    for flow, mine in flows:
        for place, ids in flow.at(rows, mine).items():
            found.setdefault(place, []).extend(ids)
    return found


def _memory(trace: Trace, shift: int, ids: Iterator[int]) -> Iterator[Counter]:
    """Bytes that each allocator has given out, after each of its events."""
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
