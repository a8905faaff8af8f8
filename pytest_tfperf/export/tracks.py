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
