"""Processes, tracks, slices and counters of a timeline, as every format writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from pytest_tfperf.export.event_args import Args


@dataclass(frozen=True, slots=True)
class Slices:
    """
    Slices of a track, as columns of one length.

    They are sorted by their start; of those that start together the longest comes first.
    """

    start_ps: Sequence[int]
    """Starts in picoseconds."""
    end_ps: Sequence[int]
    """Ends in picoseconds."""
    names: Sequence[str]
    """Names, one a slice."""
    args: Sequence[Args]
    """Arguments by slice."""
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
    """Name of the track."""
    slices: Callable[[], Iterator[Slices]]
    """Slices of the track."""


@dataclass(frozen=True, slots=True)
class Counter:
    """A number over time."""

    id: int
    """Unique in the whole export."""
    name: str
    """Name of the counter."""
    times_ps: Sequence[int]
    """Times of its values in picoseconds."""
    values: Sequence[int]
    """One for each time."""


@dataclass(frozen=True, slots=True)
class Process:
    """A plane of a host, or the steps of a host."""

    id: int
    """Unique in the whole export."""
    name: str
    """Name of the process."""
    tracks: tuple[Track, ...]
    """Tracks of the process."""
    counters: tuple[Counter, ...] = ()
    """Counters of the process."""
