"""Which stretches of a trace are steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.errors import TraceError
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.wire import Ints
from pytest_tfperf.trace.xspace import Trace

HOST = "/host:CPU"


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """
    The steps of a trace, of `n_epochs` passes over the data; `start_ps` and `end_ps` are of shape (n_steps,).

    The period of a step lasts to the start of the next one of its epoch, or to its own end where there is none.
    """

    start_ps: Ints
    end_ps: Ints
    names: tuple[str, ...]
    source: str
    n_dropped: int
    n_epochs: int = 1

    def __len__(self) -> int:
        return int(self.start_ps.size)

    @property
    def period_ps(self) -> Ints:
        """Periods, shape (n_steps,)."""
        return self.end_ps - self.start_ps

    def of(self, times_ps: Ints) -> Ints:
        """The index of the step that each time falls into, -1 where none."""
        place = np.searchsorted(self.start_ps, times_ps, side="right") - 1
        inside = (place >= 0) & (times_ps < self.end_ps[np.maximum(place, 0)])
        return np.where(inside, place, -1)


def find_steps(trace: Trace) -> Steps:
    """
    The steps of a host's trace: those that pytest-tfperf marked, else events with `step_num`, else the calls of the
    tf.function that was called most often from outside other functions.

    Raises:
        TraceError: If there is none.
    """
    host = Events.of(trace.plane(HOST))
    marked = _marked(host)
    if marked is not None:
        return marked
    called = _function_calls(host)
    if called is not None:
        return called
    raise TraceError(
        f"trace {trace.path}: no step found. Mark the steps: call tf_profile(step, data), loop over tf_profile.steps(data), or "
        "wrap each in tf.profiler.experimental.Trace('train', step_num=n, _r=1); a Keras fit, evaluate or predict, or a "
        "call of a tf.function is found by itself"
    )


def _marked(host: Events) -> Steps | None:
    if "step_num" not in host.plane.stat_names.values():
        return None
    roots = host.where(host.plane.stats_begin[host.rows] < host.plane.stats_end[host.rows]).having("step_num")
    ours = roots.having("tfperf")
    roots, source = (ours, "tfperf") if len(ours) else (roots, "step_num")
    whole = roots.where(~roots.stats.present("aborted"))
    if not len(whole):
        return None
    whole = whole.where(_outermost(whole))
    whole = whole.sorted()
    names = tuple(f"{name} {number}" for name, number in zip(whole.names, whole.integers("step_num"), strict=True))
    n_epochs = np.unique(whole.integers("epoch")).size
    return Steps(whole.start, _period_ends(whole), names, source, len(roots) - len(whole), n_epochs)


def _outermost(events: Events) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which events lie in no other of them."""
    order = np.lexsort((-events.end, events.start))
    reach = np.maximum.accumulate(events.end[order])
    keep = np.ones(len(events), bool)
    keep[order[1:]] = events.end[order[1:]] > reach[:-1]
    return keep


def _period_ends(events: Events) -> Ints:
    epoch, end = events.integers("epoch"), events.end
    if len(events) > 1:
        follows = (epoch[1:] == epoch[:-1]) & (events.start[1:] >= end[:-1])
        end[:-1] = np.where(follows, events.start[1:], end[:-1])
    return end


def _function_calls(host: Events) -> Steps | None:
    if "tf_function_call" not in host.plane.stat_names.values():
        return None
    calls = host.where(host.plane.stats_begin[host.rows] < host.plane.stats_end[host.rows]).having("tf_function_call")
    if not len(calls):
        return None
    calls = calls.where(_outermost(calls))
    name, count = Counter(calls.names).most_common(1)[0]
    chosen = calls.called(name)
    chosen = chosen.sorted()
    names = tuple(f"{name} {number}" for number in range(count))
    return Steps(chosen.start, _period_ends(chosen), names, "function", len(calls) - count)
