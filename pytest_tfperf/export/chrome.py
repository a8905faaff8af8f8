"""
Chrome's trace JSON, for chrome://tracing and Perfetto's UI.

Source of keys and phases: "Trace Event Format" of the Chromium project. Complete events are `X`,
metadata `M`, flows `s` and `f`, counters `C`. Times are microseconds, with the six decimals that
picoseconds need.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import BinaryIO

from pytest_tfperf.export.event_args import Args
from pytest_tfperf.export.tracks import Counter, Process, Slices, Track
from pytest_tfperf.text import elide

_EXACT = 1 << 53  # JavaScript's numbers hold integers up to this; larger ones are written as text
_LONGEST = 1000  # characters of a text, which is written with each of its events


@lru_cache(maxsize=1 << 16)
def _text(text: str) -> str:
    return json.dumps(elide(text, _LONGEST))


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
