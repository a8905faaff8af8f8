"""
Processes, tracks, slices and counters of a timeline, and Chrome's trace JSON of them.

Source of keys and phases: "Trace Event Format" of the Chromium project. Complete events are `X`,
metadata `M`, flows `s` and `f`, counters `C`. Times are microseconds, with the six decimals that
picoseconds need.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import BinaryIO

import numpy as np

from pytest_tfperf.text import elide
from pytest_tfperf.trace.events import Events, metadata_stats
from pytest_tfperf.trace.stats import Stats, stat_content
from pytest_tfperf.trace.xspace import Plane

Args = dict[str, "int | float | str"]
_DOUBLE = 2  # XStat.double_value, xplane.proto
_LONGEST = 200  # characters; a metadata text may be a whole program, repeated with each event
_MOST = 30  # such stats of a name; profilers write some twenty
_MOST_BYTES = 4 * _LONGEST  # of a text with so many characters
_EXACT = 1 << 53  # JavaScript's numbers hold integers up to this; larger ones are written as text
_LONGEST_NAME = 1000  # characters of a text, which is written with each of its events


def args_of(events: Events, shared: dict[str, Args]) -> list[Args]:
    """Read the stats of each event; `shared` are those of all events of a name, by name."""
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
    """Read the short stats of the plane's event metadata, by event name."""
    if not plane.metadata_stats:
        return {}
    stats, names = metadata_stats(plane), list(plane.metadata_stats)
    found: dict[str, dict[str, str]] = {}
    columns = (column.tolist() for column in (stats.owner, stats.key, stats.length))
    for place, (owner, key, length) in enumerate(zip(*columns, strict=True)):
        if key in plane.stat_names:
            text = stats.text(place) if length <= _MOST_BYTES else ""
            found.setdefault(names[owner], {})[plane.stat_names[key]] = text
    short = (
        (name, [stat for stat in sorted(texts) if 0 < len(texts[stat]) <= _LONGEST])
        for name, texts in found.items()
    )
    return {name: {stat: found[name][stat] for stat in kept[:_MOST]} for name, kept in short}


@dataclass(frozen=True, slots=True)
class Slices:
    """
    Slices of a track, as columns of one length.

    They are sorted by their start; of those that start together the longest comes first.
    """

    start_ps: Sequence[int]
    end_ps: Sequence[int]
    names: Sequence[str]
    args: Sequence[Args]
    starts: dict[int, list[int]] = field(default_factory=dict)
    """Ids of the flows that start at a slice, by the slice's index."""
    ends: dict[int, list[int]] = field(default_factory=dict)
    """Ids of the flows that end at a slice, by the slice's index."""


@dataclass(frozen=True, slots=True)
class Track:
    """A thread or stream, whose slices nest."""

    id: int
    """Unique in the whole export."""
    name: str
    slices: Callable[[], Iterator[Slices]]


@dataclass(frozen=True, slots=True)
class Counter:
    """A number over time."""

    id: int
    """Unique in the whole export."""
    name: str
    times_ps: Sequence[int]
    values: Sequence[int]
    """One for each time."""


@dataclass(frozen=True, slots=True)
class Process:
    """A plane of a host, or the steps of a host."""

    id: int
    """Unique in the whole export."""
    name: str
    tracks: tuple[Track, ...]
    counters: tuple[Counter, ...] = ()


@lru_cache(maxsize=1 << 16)
def _text(text: str) -> str:
    return json.dumps(elide(text, _LONGEST_NAME))


def write_chrome(file: BinaryIO, processes: Iterable[Process]) -> None:
    """Write the processes as one JSON object, one event a line."""
    file.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
    comma = ""
    for process in processes:
        for events in _events(process):
            if events:
                file.write((comma + ",\n".join(events)).encode("ascii"))
                comma = ",\n"
    file.write(b"\n]}\n")


def _events(process: Process) -> Iterator[list[str]]:
    yield _named("process", process.id, 0, process.name)
    for track in process.tracks:
        yield _named("thread", process.id, track.id, track.name)
        for slices in track.slices():
            yield list(_complete(process, track, slices))
            yield list(_flows(process, track, slices))
    for counter in process.counters:
        yield list(_samples(process, counter))


def _named(what: str, pid: int, tid: int, name: str) -> list[str]:
    """Name a process or thread, and sort it by its id."""
    head = f'{{"ph":"M","pid":{pid},"tid":{tid},"name":"{what}'
    return [
        f'{head}_name","args":{{"name":{_text(name)}}}}}',
        f'{head}_sort_index","args":{{"sort_index":{tid or pid}}}}}',
    ]


def _complete(process: Process, track: Track, slices: Slices) -> Iterator[str]:
    head = f'{{"ph":"X","pid":{process.id},"tid":{track.id},"ts":'
    for start, end, name, args in zip(
        slices.start_ps, slices.end_ps, slices.names, slices.args, strict=True
    ):
        shown = f',"args":{{{_args(args)}}}' if args else ""
        times = f'{_microseconds(start)},"dur":{_microseconds(end - start)}'
        yield f'{head}{times},"name":{_text(name)}{shown}}}'


def _flows(process: Process, track: Track, slices: Slices) -> Iterator[str]:
    for phase, flows in (('"ph":"s"', slices.starts), ('"ph":"f","bp":"e"', slices.ends)):
        where = f'"pid":{process.id},"tid":{track.id}'
        head = f'{{{phase},"cat":"launch","name":"launch",{where},"ts":'
        for place, ids in flows.items():
            for flow in ids:
                yield f'{head}{_microseconds(slices.start_ps[place])},"id":{flow}}}'


def _samples(process: Process, counter: Counter) -> Iterator[str]:
    head = f'{{"ph":"C","pid":{process.id},"name":{_text(counter.name)},"ts":'
    for time, value in zip(counter.times_ps, counter.values, strict=True):
        yield f'{head}{_microseconds(time)},"args":{{"bytes":{value}}}}}'


def _microseconds(picoseconds: int) -> str:
    whole, rest = divmod(picoseconds, 10**6)
    return f"{whole}.{rest:06d}" if rest else str(whole)


def _args(args: Args) -> str:
    return ",".join(f"{_text(name)}:{_value(value)}" for name, value in args.items())


def _value(value: float | str) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'"{value}"'
    return str(value) if -_EXACT <= value <= _EXACT else f'"{value}"'
