"""Stats as few distinct values: what many events share, and what a plane says of itself."""

from __future__ import annotations

import struct

import numpy as np

from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.wire import BYTES, FIXED64, VARINT, Ints
from pytest_tfperf.trace.xspace import Plane


def labels(events: Events, stat: str) -> tuple[Ints, list[str]]:
    """
    The distinct texts of a stat, the empty one first, and which of them each event has, shape (n,).

    Each distinct stored value is decoded once: profilers store a text that repeats as a reference.
    """
    stats, codes = events.stats, np.zeros(len(events), np.int64)
    keys = [key for key, name in events.plane.stat_names.items() if name == stat]
    chosen = np.flatnonzero(np.isin(stats.key, keys))
    places: dict[str, int] = {"": 0}
    for kind in np.unique(stats.kind[chosen]):
        mine = chosen[stats.kind[chosen] == kind]
        _, first, which = np.unique(stats.value[mine], return_index=True, return_inverse=True)
        texts = Events(events.plane, events.rows[stats.owner[mine[first]]]).texts(stat)
        found = np.array([places.setdefault(text, len(places)) for text in texts], np.int64)
        codes[stats.owner[mine]] = found[which.reshape(-1)]
    return codes, list(places)


def plane_stats(plane: Plane) -> dict[str, float | str | bytes]:
    """
    The stats of a plane itself by name: numbers, texts and bytes.

    XStat: metadata_id = 1, double_value = 2, uint64_value = 3, int64_value = 4, str_value = 5, bytes_value = 6, ref_value = 7
    (tsl/profiler/protobuf/xplane.proto, openxla/xla).
    """
    message, found = plane.message, {}
    for begin, end in plane.stats:
        key, content = 0, None
        for number, wire, value, behind in message.fields(begin, end, "XStat"):
            if (number, wire) == (1, VARINT):
                key = message.signed(value)
            elif (number, wire) == (2, FIXED64):
                content = struct.unpack("<d", message.slice(value, behind))[0]
            elif number in (3, 4) and wire == VARINT:
                content = message.signed(value) if number == 4 else value
            elif number in (5, 6) and wire == BYTES:
                content = message.text(value, behind) if number == 5 else message.slice(value, behind)
            elif (number, wire) == (7, VARINT):
                content = plane.stat_names.get(value, "")
        if key in plane.stat_names and content is not None:
            found[plane.stat_names[key]] = content
    return found
