"""Stats of events as the arguments that viewers show beside a slice."""

from __future__ import annotations

import numpy as np

from pytest_tfperf.trace.events import Events, metadata_stats
from pytest_tfperf.trace.stats import Stats, stat_content
from pytest_tfperf.trace.xspace import Plane

Args = dict[str, "int | float | str"]

_DOUBLE = 2  # XStat.double_value, xplane.proto
_LONGEST = 200  # characters; a metadata text may be a whole program, repeated with each event
_MOST = 30  # such stats of a name; profilers write some twenty
_MOST_BYTES = 4 * _LONGEST  # of a text with so many characters


def args_of(events: Events, shared: dict[str, Args]) -> list[Args]:
    """
    Read the stats of each event, by name.

    Args:
        events: The events.
        shared: Stats that all events of a name share, from `args_of_names`.
    """
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
