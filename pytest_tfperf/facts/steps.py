"""Find the steps in a trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.errors import TraceError
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.text import and_more
from pytest_tfperf.trace.devices import accelerators
from pytest_tfperf.trace.event_columns import distinct_values
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.host_events import (
    called_function,
    eager_calls,
    not_for_data,
    processes_for_data,
    shows_jax_calls,
    thunks,
    users_calls,
    xla_runs,
)
from pytest_tfperf.trace.xspace import HOST, Trace

_INNER = "they were ended before they were whole, or lie within another step"
_NAMED = 3  # functions that are no steps
MARKED = "tfperf"
"""Source of steps that tf_profile marked."""
OF_DEVICES = ("Steps", "XLA Modules")
"""Sources of steps that are lines of devices."""


_KERAS_LOOPS = ("train", "test", "predict")
"""Kinds of steps."""


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """
    The steps of a trace.

    The period of a step lasts to the start of the next one of its epoch, or to its own end without
    one.
    """

    start_ps: Ints
    """Starts in picoseconds, shape (n_steps,)."""
    end_ps: Ints
    """Ends in picoseconds, shape (n_steps,)."""
    names: tuple[str, ...]
    """Names, one a step."""
    source: str
    """Source of the steps in the trace."""
    n_dropped: int
    """Number of events of the source that are not steps."""
    n_epochs: int = 1
    """Number of passes over the data."""
    sizes: Ints | None = None
    """Number of steps that loop inside each, shape (n_steps,), or None for one each."""
    why_dropped: str = ""
    """Reason for `n_dropped`."""
    others: tuple[str, ...] = ()
    """Functions whose calls are no steps, where calls of one are."""
    why_untimed: str = ""
    """Reason why their work may have ended outside of them, so that their periods mean nothing."""

    def __len__(self) -> int:
        return int(self.start_ps.size)

    @property
    def n_steps(self) -> int:
        """Number of steps, including those that loop inside others."""
        return len(self) if self.sizes is None else int(np.maximum(self.sizes, 1).sum())

    @property
    def in_keras(self) -> bool:
        """True if they are batches of a loop of Keras that pytest-tfperf marked."""
        return len(self) > 0 and self.names[0].partition(" ")[0] in _KERAS_LOOPS

    @property
    def period_ps(self) -> Ints:
        """Periods, shape (n_steps,)."""
        return self.end_ps - self.start_ps

    def of(self, times_ps: Ints) -> Ints:
        """Return the index of the step at each time, -1 outside of steps."""
        place = np.searchsorted(self.start_ps, times_ps, side="right") - 1
        inside = (place >= 0) & (times_ps < self.end_ps[np.maximum(place, 0)])
        return np.where(inside, place, -1)

    def counts(self, step: Ints) -> Ints:
        """Count the indices of `of` by step, shape (n_steps,)."""
        return np.bincount(step[step >= 0], minlength=len(self))


def find_steps(trace: Trace, own: Collection[str] = ()) -> Steps:
    """
    Return the steps of a host's trace, from the first source that it has.

    The sources are: steps that pytest-tfperf marked; other events with `step_num` (`_r` roots,
    `TraceContext`, Keras' "Profiled batch"); the `Steps` line of a TPU core; iterations of a loop
    in a graph; calls of the tf.function called most often outside of others; runs of a session, as
    of TensorFlow Serving; executions on a device's `XLA Modules` line; calls of JAX's most called
    function. What tf.data runs for its elements is no step, be it a loop or a call.

    Args:
        trace: The trace.
        own: Functions that JAX itself compiles, as `add`; their calls are no steps.

    Raises:
        TraceError: If there is no step.
    """
    host = Events.of(trace.plane(HOST))
    found = (
        _marked(host)
        or _device_line(trace, "Steps")
        or _iterations(host)
        or _function_calls(host)
        or _device_line(trace, "XLA Modules")
        or _most_called(not_for_data(host, users_calls(host, own)))
    )
    if found is not None:
        return found
    if _runs_without_framework(trace, host):
        raise TraceError(
            f"trace {trace.path}: no step found. XLA ran executables, and no call of TensorFlow or "
            "JAX tells which of them are a step. Mark each step with an event that has the stats "
            "step_num and _r=1, as TraceMe of XLA's profiler (tsl) does"
        )
    raise TraceError(
        f"trace {trace.path}: no step found. Mark the steps: call tf_profile(step, data), "
        "loop over tf_profile.steps(data), or "
        "wrap each in tf.profiler.experimental.Trace('train', step_num=n, _r=1); a Keras fit, "
        "evaluate or predict, or a "
        "call of a tf.function is found by itself"
    )


def _runs_without_framework(trace: Trace, host: Events) -> bool:
    """Return whether a program ran executables of XLA itself, as by PJRT's own interface."""
    if len(eager_calls(host)) or shows_jax_calls(host):
        return False
    devices = (thunks(Events.of(plane)) for plane in accelerators(trace))
    return len(xla_runs(host)) > 0 or any(map(len, devices))


def _marked(host: Events) -> Steps | None:
    if "step_num" not in host.plane.stat_names.values():
        return None
    roots = host.having("step_num")
    ours = roots.having("tfperf")
    roots, source = (ours, MARKED) if len(ours) else (roots, "step_num")
    whole = roots.where(~roots.stats.present("aborted"))
    if not len(whole):
        return None
    whole = whole.where(_outermost(whole))
    whole = whole.sorted()
    kinds = [
        graph or name for graph, name in zip(whole.texts("graph_type"), whole.names, strict=True)
    ]
    names = tuple(
        f"{kind} {number}" for kind, number in zip(kinds, whole.integers("step_num"), strict=True)
    )
    n_epochs = distinct_values(whole.integers("epoch")).size
    return Steps(
        whole.start,
        _period_ends(whole),
        names,
        source,
        len(roots) - len(whole),
        n_epochs,
        whole.integers("batches", 1),
        _INNER,
    )


def _outermost(events: Events) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return a mask of the events that lie in no other of them."""
    order = np.lexsort((-events.end, events.start))
    reach = np.maximum.accumulate(events.end[order])
    keep = np.ones(len(events), bool)
    keep[order[1:]] = events.end[order[1:]] > reach[:-1]
    return keep


def _period_ends(events: Events) -> Ints:
    epoch, end = events.integers("epoch"), events.end.copy()
    if len(events) > 1:
        end[:-1] = np.where(
            epoch[1:] == epoch[:-1], events.start[1:], np.minimum(end[:-1], events.start[1:])
        )
    return end


def _device_line(trace: Trace, title: str) -> Steps | None:
    """
    Return the events of the devices' lines of that title.

    `Steps` are grouped by name over all devices. Of other lines the program run most often counts.
    """
    lines = [Events.of(plane).on_lines(title) for plane in accelerators(trace)]
    lines = [events.where(_outermost(events)).sorted() for events in lines if len(events)]
    if not lines:
        return None
    if title == "Steps":
        return _hulls(lines)
    events = max(lines, key=len)
    name, count = Counter(events.names).most_common(1)[0]
    chosen = events.called(name)
    names = tuple(f"{name.partition('(')[0]} {number}" for number in range(count))
    return Steps(
        chosen.start,
        _period_ends(chosen),
        names,
        title,
        len(events) - count,
        why_dropped="they are executions of other programs",
    )


def _hulls(lines: list[Events]) -> Steps:
    """
    Merge the steps of several devices: the longest of each name, widened by those that overlap it.

    Devices whose steps of one name do not overlap ran at different times, and the time between is
    not a step.
    """
    spans: dict[str, list[tuple[int, int]]] = {}
    for events in lines:
        for name, start, end in zip(
            events.names, events.start.tolist(), events.end.tolist(), strict=True
        ):
            spans.setdefault(name, []).append((start, end))
    hulls, apart = {}, 0
    for name, found in spans.items():
        begin, stop = max(found, key=lambda span: span[1] - span[0])
        together = [(begin, stop), *(span for span in found if span[0] < stop and span[1] > begin)]
        apart += len(found) - (len(together) - 1)
        hulls[name] = (min(span[0] for span in together), max(span[1] for span in together))
    order = sorted(hulls, key=lambda name: hulls[name])
    start, end = np.array([hulls[name] for name in order], np.int64).T
    end[:-1] = np.maximum(start[1:], start[:-1])
    return Steps(
        start,
        end,
        tuple(order),
        "Steps",
        apart,
        why_dropped="devices ran them at another time than the step of that name that was taken",
    )


def _iterations(host: Events) -> Steps | None:
    """
    Return the iterations of a loop in a graph: runs of the executor with more than one iteration
    number.
    """
    process = host.called("ExecutorState::Process")
    process = process.where(~processes_for_data(host.plane))
    process = process.where(process.integers("iter_num", -1) >= 0)
    run, number = process.integers("id"), process.integers("iter_num")
    looping = np.isin(run, np.unique(run[number > 0]))
    process, run, number = process.where(looping), run[looping], number[looping]
    if not len(process):
        return None
    keys, index = np.unique(np.array([run, number]), axis=1, return_inverse=True)
    index = index.reshape(-1)
    start, end = (
        np.full(keys.shape[1], np.iinfo(np.int64).max),
        np.full(keys.shape[1], np.iinfo(np.int64).min),
    )
    np.minimum.at(start, index, process.start)
    np.maximum.at(end, index, process.end)
    follows = keys[0][1:] == keys[0][:-1]
    end[:-1] = np.where(follows, end[1:], end[:-1])
    real = np.flatnonzero(
        np.r_[follows, False]
    )  # the last of a run evaluates the condition alone, and finds that the loop is over
    if not real.size:
        return None
    order = real[np.argsort(start[real], kind="stable")]
    start, end = start[order], np.maximum(end[order], start[order])
    end[:-1] = start[1:]
    names = tuple(f"iteration {number}" for number in keys[1][order])
    return Steps(start, end, names, "iterations", 0)


def _function_calls(host: Events) -> Steps | None:
    calls = not_for_data(host, host.having("tf_function_call"))
    if not len(calls) and len(runs := host.called("SessionRun")):
        return _most_called(runs, "session")
    return _most_called(calls if len(calls) else not_for_data(host, host.called("FunctionRun")))


def _most_called(calls: Events, source: str = "function") -> Steps | None:
    """Return the outermost calls of the name that is called most often."""
    if not len(calls):
        return None
    calls = calls.where(_outermost(calls))
    name, count = Counter(calls.names).most_common(1)[0]
    chosen = calls.called(name).sorted()
    names = tuple(f"{called_function(name)} {number}" for number in range(count))
    called = dict.fromkeys(calls.sorted().names)
    others = tuple(called_function(other) for other in called if other != name)
    return Steps(
        chosen.start,
        _period_ends(chosen),
        names,
        source,
        len(calls) - count,
        why_dropped=f"they are calls of other functions: {and_more(others, _NAMED)}",
        others=others,
    )
