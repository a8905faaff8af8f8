"""Draw up the timeline of the median step: its parts, and the longest events of each lane."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.facts.device_ops import instruction, kinds_by_name
from pytest_tfperf.facts.host_activity import eager_executions, model_ops
from pytest_tfperf.facts.stages import stage_type
from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.devices import GPU, accelerators, device_name, stream_events, tpu_ops
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.host_events import (
    DATA_RUNS,
    compilations,
    eager_types,
    not_for_data,
    thunks,
    xla_executions,
)
from pytest_tfperf.trace.intervals import covered, distinct_values, merge
from pytest_tfperf.trace.xspace import HOST, Plane, Trace
from pytest_tfperf.values import PARTS, Column, Table

STEP = "step"
"""Lane of the step's parts; they do not overlap."""
_COLUMNS = (
    Column("lane", "lane"),
    Column("name", "event"),
    Column("part", "part"),
    Column("start_s", "into the step", "s"),
    Column("length_s", "length", "s"),
)
_N_BINS, _MOST_OF_LANE, _MOST_DEVICES = 240, 24, 4
_TOO_SHORT = 2000  # an event of less than this part of the step would be no pixel wide
_COPIES = frozenset({"input", "output", "device_to_device"})

_Row = tuple[str, str, str, float, float]


@dataclass(frozen=True, slots=True)
class _Lane:
    """Events that are drawn side by side."""

    title: str
    events: Events
    part_of: Callable[[str], str]
    """Gives the part of a step that an event of a name is of."""
    names_of: Callable[[Events], list[str]] = lambda events: events.names
    """Gives the names that are shown."""


def analyse(evidence: Evidence) -> Findings:
    """Draw up the timeline of the step whose period is nearest to the median."""
    if evidence.trace is None or evidence.steps.why_untimed:
        return Findings()
    step = _Step.median(evidence.steps)
    rows = [*step.parts(evidence)]
    for lane in _lanes(evidence.trace):
        rows += step.events(lane)
    title = f"timeline of the median step, {step.name}"
    return Findings(tables={"median_step": Table.of(title, _COLUMNS, rows, len(rows))})


class _Step:
    """One step of a trace, in picoseconds."""

    def __init__(self, steps: Steps, number: int) -> None:
        name = steps.names[number]
        self.number, self.name = number, f"step {name}" if name.isdigit() else name
        self.begin, self.end = int(steps.start_ps[number]), int(steps.end_ps[number])
        self.edges: Ints = np.linspace(self.begin, self.end, _N_BINS + 1).astype(np.int64)

    @classmethod
    def median(cls, steps: Steps) -> _Step:
        """Return the step whose period is nearest to the median, the first of several."""
        periods = steps.period_ps
        return cls(steps, int(np.argmin(np.abs(periods - np.median(periods)))))

    def parts(self, evidence: Evidence) -> Iterator[_Row]:
        """Yield the step's parts by time: of each of `_N_BINS` equal bins the largest part."""
        spans = evidence.breakdown.spans_of(self.number, self.begin, self.end)
        edges = self.edges
        lengths = {part: np.zeros(_N_BINS, np.int64) for part in PARTS}
        for part, one in spans:
            lengths[part] += covered(one, edges[:-1], edges[1:])
        lengths["other"] = np.diff(edges) - np.sum([*lengths.values()], axis=0)
        largest = np.argmax([lengths[part] for part in PARTS], axis=0)
        first = np.flatnonzero(np.diff(largest, prepend=-1))
        for start, stop in zip(first, np.append(first[1:], _N_BINS), strict=True):
            yield self._row(STEP, "", PARTS[largest[start]], int(edges[start]), int(edges[stop]))

    def events(self, lane: _Lane) -> Iterator[_Row]:
        """Yield a lane's longest events, after nameless rows of what all cover if it has more."""
        events = lane.events
        near = events.where((events.start < self.end) & (events.end > self.begin))
        begin, end = np.maximum(near.start, self.begin), np.minimum(near.end, self.end)
        wide = np.flatnonzero((end - begin) * _TOO_SHORT > self.end - self.begin)
        kept = wide[np.argsort(begin[wide] - end[wide], kind="stable")][:_MOST_OF_LANE]
        if kept.size < len(near):
            yield from self._covered(lane, near)
        kept = kept[np.lexsort((-end[kept], begin[kept]))]
        drawn = Events(near.plane, near.rows[kept])
        names = zip(drawn.names, lane.names_of(drawn), strict=True)
        for (name, shown), place in zip(names, kept.tolist(), strict=True):
            part = lane.part_of(name)
            yield self._row(lane.title, shown, part, int(begin[place]), int(end[place]))

    def _covered(self, lane: _Lane, events: Events) -> Iterator[_Row]:
        """Yield the runs of bins of which events cover at least half."""
        part = lane.part_of(events.names[0])
        busy = covered(merge(events.spans), self.edges[:-1], self.edges[1:])
        is_busy = 2 * busy >= np.diff(self.edges)
        first = np.flatnonzero(np.diff(is_busy, prepend=False) & is_busy)
        after = np.flatnonzero(np.diff(is_busy, append=False) & is_busy) + 1
        for start, stop in zip(first, after, strict=True):
            yield self._row(lane.title, "", part, int(self.edges[start]), int(self.edges[stop]))

    def _row(self, lane: str, name: str, part: str, begin: int, end: int) -> _Row:
        return lane, name, part, (begin - self.begin) * 1e-12, (end - begin) * 1e-12


def _lanes(trace: Trace) -> Iterator[_Lane]:
    """Yield the lanes from the input to the devices; some may be empty."""
    host = Events.of(trace.plane(HOST))
    iterators = host.named(lambda name: name.startswith("Iterator::"))
    yield _Lane("tf.data", iterators, _is("input"), _stage_names)
    runs = host.named(lambda name: name.startswith(DATA_RUNS))
    yield _Lane(
        "functions of tf.data", runs, _is("input"), lambda events: ["function"] * len(events)
    )
    yield _Lane(
        "eager ops", not_for_data(host, eager_executions(host)), _is("host_compute"), _eager
    )
    yield _Lane("host ops", model_ops(host), _is("host_compute"))
    yield _Lane("compilation", compilations(host), _is("compile"))
    executed = distinct_values(np.r_[xla_executions(host).rows, thunks(host).rows])
    yield _Lane("XLA on the host", Events(host.plane, executed), _is("host_compute"))
    for plane in accelerators(trace)[:_MOST_DEVICES]:
        yield from _device_lanes(plane)


def _device_lanes(plane: Plane) -> Iterator[_Lane]:
    """Yield what a device computes, and the copies to it, from it and on it."""
    kind_of, name = kinds_by_name(plane), device_name(plane)
    events = stream_events(plane) if GPU.match(plane.name) else tpu_ops(plane)
    copies = events.named(lambda one: kind_of(one) in _COPIES)
    works = events.named(lambda one: kind_of(one) not in _COPIES)
    yield _Lane(name, works, kind_of, _instructions)
    yield _Lane(f"{name} copies", copies, kind_of, _instructions)


def _is(part: str) -> Callable[[str], str]:
    return lambda _: part


def _stage_names(iterators: Events) -> list[str]:
    """Return the type of each stage, with the name that the user gave it."""
    named = zip(iterators.names, iterators.texts("name"), strict=True)
    return [f"{stage_type(path)} {name!r}" if name else stage_type(path) for path, name in named]


def _instructions(events: Events) -> list[str]:
    return [instruction(name).removeprefix("void ") for name in events.names]


def _eager(events: Events) -> list[str]:
    types = eager_types(events)
    return [op or name for op, name in zip(types, events.names, strict=True)]
