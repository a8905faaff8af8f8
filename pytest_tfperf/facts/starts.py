"""
Measure what an input pipeline spends on starting: shuffle buffers that fill, files that open.

Names and stats of the events are those of TensorFlow 2.18 to 2.22 (tensorflow/core/data and
tensorflow/core/kernels/data).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.facts.stages import Stage, stage_above, stage_groups, stage_type
from pytest_tfperf.trace.events import Events, parents
from pytest_tfperf.trace.intervals import Spans, intersect, merge
from pytest_tfperf.trace.xspace import HOST, Trace

_STEADY = 2
"""Most elements that a call of a full shuffle buffer takes in; at an epoch's end it takes two."""
_SETUP = "SetupStreamsLocked"
"""End of the names of the events in which a reader opens a file (`TFRecordDatasetOp::Iterator`)."""
_INITIALIZE = "ParallelInterleaveInitializeInput"
"""Events in which a parallel interleave makes the iterator of its next file."""
_OPENERS = frozenset({"FlatMap", "Interleave"})
"""Stages that make an iterator for each file, on the thread of their caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """The filling of a shuffle buffer."""

    path: str
    """Path of the shuffle stage."""
    buffer_size: int
    """Elements that the buffer holds, 0 if unknown."""
    waited_s: float
    """Seconds in which a step waited meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Openings:
    """The opening of files."""

    paths: frozenset[str]
    """Paths of the stages that read the files and that open them."""
    n_files: int
    """Number of files opened."""
    n_records: int
    """Number of records read."""
    opening_s: float
    """Seconds that making their iterators and opening them took, of all threads together."""


def find_fills(trace: Trace, waits: Spans) -> tuple[Fill, ...]:
    """
    Find the shuffle buffers that filled while a step waited, by calls that took in many elements.

    Args:
        trace: The trace of the steps.
        waits: Merged spans in which a step waited.
    """
    iterators = Events.of(trace.plane(HOST)).named(lambda name: name.startswith("Iterator::"))
    if not len(iterators):
        return ()
    paths, group = stage_groups(iterators)
    above = parents(iterators)
    taken = np.bincount(above[above >= 0], minlength=len(iterators))
    found = []
    for place, path in enumerate(paths):
        if not stage_type(path).startswith("Shuffle"):
            continue
        filling = iterators.where((group == place) & (taken > _STEADY))
        waited = intersect(merge(filling.spans), waits)
        waited_s = int((waited[1] - waited[0]).sum()) * 1e-12
        if waited_s:
            size = int(filling.integers("buffer_size").max())
            found.append(Fill(path=path, buffer_size=size, waited_s=waited_s))
    return tuple(found)


def find_openings(trace: Trace, stages: Sequence[Stage]) -> Openings:
    """Find what opening files took, with the functions that make an iterator for each."""
    host = Events.of(trace.plane(HOST))
    setups = host.named(lambda name: name.endswith(_SETUP))
    initialised = host.called(_INITIALIZE)
    readers = [stage for stage in stages if stage.reads_files]
    above = {stage_above(stage.path) for stage in readers}
    openers = [stage for stage in stages if stage.path in above and stage.name in _OPENERS]
    spent_ps = sum(int((events.end - events.start).sum()) for events in (setups, initialised))
    return Openings(
        paths=frozenset(stage.path for stage in (*readers, *openers)),
        n_files=len(setups),
        n_records=sum(stage.calls for stage in readers),
        opening_s=spent_ps * 1e-12 + sum(stage.self_s for stage in openers),
    )
