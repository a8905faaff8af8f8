"""Tell the events that an input pipeline of tf.data caused from those of the model."""

from __future__ import annotations

import numpy as np

from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.event_columns import distinct_values
from pytest_tfperf.trace.events import Events, joined
from pytest_tfperf.trace.nesting import enclosing
from pytest_tfperf.trace.stat_columns import Mask
from pytest_tfperf.trace.xspace import Plane, once

_DATA_LINES = ("tf_data_",)
DATA_RUNS = "InstantiatedCapturedFunction::Run"
"""Name of the events in which tf.data runs a function of the user's."""


def not_for_data(host: Events, events: Events) -> Events:
    """Return the events that no input pipeline caused: neither its threads nor its functions."""
    return events.where(~is_for_data(host.plane)[events.rows])


@once
def is_for_data(plane: Plane) -> Mask:
    """Return a mask of the events of a plane that an input pipeline caused, shape (n_events,)."""
    host = Events.of(plane)
    is_caused: Mask = _on_data_thread(host)
    process = host.called("ExecutorState::Process")
    runs = processes_for_data(plane)
    elsewhere = distinct_values(process.line[runs & ~is_caused[process.rows]]).tolist()
    for line in (plane.lines[index] for index in elsewhere):
        here = np.flatnonzero((process.rows >= line.first) & (process.rows < line.last))
        for_data = np.r_[runs[here], False]  # the last entry answers for -1
        own = Events(plane, process.rows[here])
        near = Events(plane, np.arange(line.first, line.last))
        is_caused[near.rows] |= for_data[enclosing(own, near)]
    return is_caused


@once
def process_ids(plane: Plane) -> Ints:
    """Return the function run of each `ExecutorState::Process` event, shape (n,)."""
    return Events.of(plane).called("ExecutorState::Process").integers("id")


@once
def data_runs(plane: Plane) -> Ints:
    """
    Return the run of a pipeline's function that each `ExecutorState::Process` event is part of.

    It is an index into the events whose names begin with `DATA_RUNS`, or -1; shape (n,).
    """
    runs = Events.of(plane).named(lambda name: name.startswith(DATA_RUNS)).integers("id")
    return joined(process_ids(plane), runs, np.arange(runs.size))


@once
def processes_for_data(plane: Plane) -> Mask:
    """
    Return a mask of the `ExecutorState::Process` events that run a pipeline's function, shape (n,).
    """
    process = Events.of(plane).called("ExecutorState::Process")
    for_data: Mask = (data_runs(plane) >= 0) | _on_data_thread(process)
    return for_data


def _on_data_thread(events: Events) -> Mask:
    """Return a mask of the events on threads of tf.data, shape (n,)."""
    is_data = np.array([line.name.startswith(_DATA_LINES) for line in events.plane.lines], bool)
    return is_data[events.line]
