"""The stats of events as the arguments that viewers show beside a slice."""

from __future__ import annotations

import numpy as np

from pytest_tfperf.trace.events import Events, Stats, metadata_texts
from pytest_tfperf.trace.xspace import Plane

Args = dict[str, "int | float | str"]

_DOUBLE, _INT64, _STRING, _BYTES, _REF = 2, 4, 5, 6, 7  # field numbers of XStat's values, xplane.proto
_LONGEST = 200  # characters; what an event's name stands for may be a whole program, and would be repeated with each event


def args_of(events: Events, shared: dict[str, Args]) -> list[Args]:
    """The stats of each event by name, besides those that all events of its name share."""
    stats = Stats.read(events.plane, events.rows)
    plane = events.plane
    result = [dict(shared.get(name, {})) for name in events.names]
    order = np.argsort(stats.owner, kind="stable")
    columns = (stats.owner, stats.key, stats.kind, stats.value, stats.value.view(np.float64), stats.length)
    for owner, key, kind, value, double, length in zip(*(column[order].tolist() for column in columns), strict=True):
        name = plane.stat_names.get(key, f"stat {key}")
        result[owner][name] = double if kind == _DOUBLE else _value(plane, kind, value, length)
    return result


def _value(plane: Plane, kind: int, value: int, length: int) -> int | str:
    if kind == _STRING:
        return plane.message.text(value, value + length)
    if kind == _REF:
        return plane.stat_names.get(value, "")
    if kind == _BYTES:
        return f"{length} bytes"
    return plane.message.signed(value) if kind == _INT64 else value


def args_of_names(plane: Plane) -> dict[str, Args]:
    """The short stats of the plane's event metadata, by the events' names."""
    found: dict[str, Args] = {}
    for stat in sorted(set(plane.stat_names.values())) if plane.metadata_stats else ():
        for name, text in metadata_texts(plane, stat).items():
            if len(text) <= _LONGEST:
                found.setdefault(name, {})[stat] = text
    return found
