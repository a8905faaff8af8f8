"""Flows: arrows from host launches to the work that they launched on a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.devices import stream_events
from pytest_tfperf.trace.events import Events, joined
from pytest_tfperf.trace.xspace import Plane


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

        Args:
            launches: Launches on the host.
            device: Plane of the device.
            first_id: First id of the arrows.
        """
        work = stream_events(device).having("correlation_id")
        row = joined(
            work.integers("correlation_id"), launches.integers("correlation_id"), launches.rows
        )
        return cls(row[row >= 0], work.rows[row >= 0], first_id)

    def ids_at(self, rows: Ints, end: Ints) -> dict[int, list[int]]:
        """
        Find the flows at some events.

        Args:
            rows: Rows of the events in their plane.
            end: `launch` or `work`, whichever has rows of that plane.

        Returns:
            Ids of the flows by index of the event.
        """
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
