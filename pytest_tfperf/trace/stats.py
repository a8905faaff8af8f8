"""Stats of few distinct values: labels that events share, and the stats of a plane."""

from __future__ import annotations

import numpy as np

from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.event_columns import distinct_values
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.stat_columns import Stats
from pytest_tfperf.trace.xspace import Plane


def labels(events: Events, stat: str) -> tuple[Ints, list[str]]:
    """
    Return an index into the distinct texts of a stat for each event, shape (n,), and the texts.

    The first text is the empty one. Each distinct stored value is decoded once: profilers store a
    repeated text as a reference.
    """
    stats, codes = events.stats, np.zeros(len(events), np.int64)
    keys = [key for key, name in events.plane.stat_names.items() if name == stat]
    chosen = np.flatnonzero(np.isin(stats.key, keys))
    places: dict[str, int] = {"": 0}
    for kind in distinct_values(stats.kind[chosen]):
        mine = chosen[stats.kind[chosen] == kind]
        _, first, which = np.unique(stats.value[mine], return_index=True, return_inverse=True)
        texts = Events(events.plane, events.rows[stats.owner[mine[first]]]).texts(stat)
        found = np.array([places.setdefault(text, len(places)) for text in texts], np.int64)
        codes[stats.owner[mine]] = found[which.reshape(-1)]
    return codes, list(places)


def plane_stats(plane: Plane) -> dict[str, float | str | bytes]:
    """Return the stats of a plane itself by name: numbers, texts and bytes."""
    if not plane.stats:
        return {}
    begin, end = np.array(plane.stats, np.int64).T
    stats = Stats.at(plane, begin.size, np.arange(begin.size), begin, end)
    named = [
        (place, plane.stat_names[key])
        for place, key in enumerate(stats.key.tolist())
        if key in plane.stat_names
    ]
    return {name: stats.content(place) for place, name in named}
