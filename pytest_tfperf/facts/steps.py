"""The steps of a trace: as the host launched them, and as the devices ran them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pytest_tfperf.errors import TraceError
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.text import and_more, plural
from pytest_tfperf.trace.devices import accelerators, gpus, stream_events, tpus
from pytest_tfperf.trace.events import Events, enclosing, joined
from pytest_tfperf.trace.host_events import (
    called_function,
    eager_calls,
    jax_calls,
    launched_ps,
    not_for_data,
    processes_for_data,
    shows_jax_calls,
    thunks,
    unlinked_runs,
    users_calls,
    xla_runs,
)
from pytest_tfperf.trace.intervals import distinct_values
from pytest_tfperf.trace.xspace import HOST, Plane, Trace

_INNER = "they were ended before they were whole, or lie within another step"
_NAMED = 3  # functions that are no steps
MARKED = "tfperf"
"""Source of steps that tf_profile marked."""
OF_DEVICES = ("Steps", "XLA Modules")
"""Sources of steps that are lines of devices."""
_KERAS_LOOPS = ("train", "test", "predict")
"""Kinds of steps."""
_BEHIND = "pjrt_async_work_runner"  # the name of its threads (JAX 0.11)
_HOPS = 8  # threads that a call is handed through at most
_NO_LINK = (
    "the devices worked after the last step, and the trace links their work to no step: wait in "
    "each step for its results"
)
_UNTIMED = (
    "JAX's calls return before their work ends, and {}: wait in each step, or before the trace "
    "ends, with jax.block_until_ready"
)
_LAGS = 0.5
"""
Share of linked device time outside its step, above which the host's steps are not the device's.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Steps of a trace; the period of one lasts to the next start of its epoch, else its end."""

    start_ps: Ints
    """Shape (n_steps,)."""
    end_ps: Ints
    """Shape (n_steps,)."""
    names: tuple[str, ...]
    source: str
    """Source of the steps in the trace."""
    n_dropped: int
    """Events of the source that are not steps."""
    n_epochs: int = 1
    """Passes over the data."""
    sizes: Ints | None = None
    """Steps that loop inside each, shape (n_steps,), or None for one each."""
    why_dropped: str = ""
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
        is_marked = len(self) > 0 and self.source.startswith(MARKED)
        return is_marked and self.names[0].partition(" ")[0] in _KERAS_LOOPS

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


def only_own(own_functions: Mapping[str, bool] | None) -> frozenset[str]:
    """Return the names that JAX's own compiled functions have and no function of the user."""
    found = (own_functions or {}).items()
    return frozenset(name for name, is_users_too in found if not is_users_too)


def find_steps(trace: Trace, own: Collection[str] = ()) -> Steps:
    """
    Return a host's steps from the first source that it has; raises TraceError without any. The
    sources are: steps that pytest-tfperf marked; other events with `step_num` (`_r` roots,
    `TraceContext`, Keras' "Profiled batch"); the `Steps` line of a TPU core; iterations of a loop
    in a graph; calls of a tf.function outside of others; runs of a session, as of TensorFlow
    Serving; executions on a device's `XLA Modules` line; calls of a function of JAX. Of several
    functions and programs it is the one with most time. What tf.data runs for its elements is no
    step, be it a loop or a call.
    """
    host = Events.of(trace.plane(HOST))
    found = (
        _marked(host)
        or _device_line(trace, "Steps")
        or _iterations(host)
        or _function_calls(host)
        or _device_line(trace, "XLA Modules")
        or _calls(not_for_data(host, users_calls(host, own)))
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
    """Return the devices' `Steps` by name over all, or another line's program with most time."""
    lines = [Events.of(plane).on_lines(title) for plane in accelerators(trace)]
    lines = [events.where(_outermost(events)).sorted() for events in lines if len(events)]
    if not lines:
        return None
    if title == "Steps":
        return _hulls(lines)
    events = max(lines, key=len)
    chosen = _with_most_time(events)
    name, count = chosen.names[0], len(chosen)
    names = tuple(f"{name.partition('(')[0]} {number}" for number in range(count))
    return Steps(
        chosen.start,
        _period_ends(chosen),
        names,
        title,
        len(events) - count,
        why_dropped="they are executions of other programs",
    )


def _with_most_time(events: Events) -> Events:
    """
    Return the events of the name with most time, of the repeated ones if any is.

    Small functions, such as those that convert arrays, may be called more often than the step.
    """
    each = map(events.called, dict.fromkeys(events.names))
    return max(each, key=lambda one: (len(one) > 1, one.duration.sum()))


def _hulls(lines: list[Events]) -> Steps:
    """Merge steps of several devices: the longest of a name, widened by those that overlap it."""
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
    Return iterations of a loop in a graph: runs of the executor with more than one number.

    A loop without `IteratorGetNext` in repeated calls is a part of a step, as that of an RNN.
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
    found, calls = Steps(start, end, names, "iterations", 0), _function_calls(host)
    fetches = host.named(lambda name: name.startswith("IteratorGetNext"))
    call = start[:0] if calls is None else calls.of(start)
    is_repeated = distinct_values(call[call >= 0]).size > 1
    return None if is_repeated and not (found.of(fetches.start) >= 0).any() else found


def _function_calls(host: Events) -> Steps | None:
    calls = not_for_data(host, host.having("tf_function_call"))
    if not len(calls) and len(runs := host.called("SessionRun")):
        return _calls(runs, "session")
    return _calls(calls if len(calls) else not_for_data(host, host.called("FunctionRun")))


def _calls(calls: Events, source: str = "function") -> Steps | None:
    """Return the outermost calls of the name whose calls take most time."""
    if not len(calls):
        return None
    calls = calls.where(_outermost(calls))
    chosen = _with_most_time(calls).sorted()
    name, count = chosen.names[0], len(chosen)
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


def own_steps(plane: Plane, steps: Steps) -> Steps:
    """
    Return the steps at the times of the plane's own line, or the given ones if they are of the
    host, or the device has another number of them or ran them at other times.
    """
    if steps.source not in OF_DEVICES or not len(steps):
        return steps
    events = Events.of(plane).on_lines(steps.source).sorted()
    if steps.source == "Steps":
        by_length = np.argsort(events.end - events.start, kind="stable").tolist()
        names = events.names
        longest = {names[place]: place for place in by_length}
        chosen = [longest[name] for name in steps.names if name in longest]
        events = Events(plane, events.rows[chosen])
    else:
        program = steps.names[0].rpartition(" ")[0]
        events = events.named(lambda name: name.partition("(")[0] == program)
    if (
        len(events) != len(steps)
        or (events.start >= steps.end_ps).any()
        or (events.end <= steps.start_ps).any()
    ):
        return steps
    end = events.end.copy()
    end[:-1] = np.maximum(events.start[1:], events.start[:-1])
    return replace(steps, start_ps=events.start, end_ps=end)


def linked_work(trace: Trace, steps: Steps) -> Iterator[tuple[Events, Ints]]:
    """
    Yield each device's kernels and copies, a TPU's executions or JAX's work on the host, and the
    step that caused each, -1 if unknown; TensorFlow's calls on the host end with their work.
    """
    yield from linked_kernels(trace, steps)
    host = Events.of(trace.plane(HOST))
    if not accelerators(trace) and len(jax_calls(host)):
        events = thunks(host)
        yield events, steps.of(launched_ps(host.plane)[events.rows])
    for plane in tpus(trace):
        ordinal = int(plane.name.rpartition(":")[2])
        events, calls = Events.of(plane).on_lines("XLA Modules"), host.called("DoEnqueueProgram")
        calls = calls.where(calls.integers("device_ordinal", ordinal) == ordinal)
        yield events, joined(_run_keys(events), _run_keys(calls), _steps_of(host, calls, steps))


def linked_kernels(trace: Trace, steps: Steps) -> Iterator[tuple[Events, Ints]]:
    """
    Yield each GPU's kernels and copies, and the step that caused each, -1 if unknown, as for
    threads that copy for JAX: they run behind the steps, and the trace does not link them.
    """
    planes = gpus(trace)
    if not planes:
        return
    host = Events.of(trace.plane(HOST))
    calls = host.having("correlation_id")
    behind = [line.name.startswith(_BEHIND) for line in host.plane.lines]
    ids = calls.integers("correlation_id", -2)
    step = np.where(np.array(behind, bool)[calls.line], -1, _steps_of(host, calls, steps))
    for events in map(stream_events, planes):
        yield events, joined(events.integers("correlation_id", -1), ids, step)


def on_the_device(trace: Trace, steps: Steps) -> Steps:
    """
    Return the steps as the devices ran them, if the host only enqueued them and most work came
    later. Such a step lasts from the first work that it caused to that of the next of its epoch,
    and steps without work are dropped. Else the last step of an epoch is prolonged until its work
    ends. Where the trace does not tell which step caused the work that followed, the steps are
    untimed.
    """
    if steps.source in OF_DEVICES:
        return steps
    if why := _why_untimed(trace, steps):
        return replace(steps, why_untimed=why)
    work = list(linked_work(trace, steps))
    found = [(events.where(step >= 0), step[step >= 0]) for events, step in work]
    spans = [(events.start, events.end, step) for events, step in found if len(events)]
    if not spans:
        late_ps = sum(int(one.duration[one.start >= steps.end_ps[-1]].sum()) for one, _ in work)
        is_late = late_ps > _LAGS * sum(int(one.duration.sum()) for one, _ in work)
        return replace(steps, why_untimed=_NO_LINK) if is_late else steps
    start, end, step = (np.concatenate(columns) for columns in zip(*spans, strict=True))
    inside = np.maximum(
        np.minimum(end, steps.end_ps[step]) - np.maximum(start, steps.start_ps[step]), 0
    )
    if (end - start - inside).sum() <= _LAGS * (end - start).sum():
        return _prolonged(steps, end, step)
    first, last = (
        np.full(len(steps), np.iinfo(np.int64).max),
        np.full(len(steps), np.iinfo(np.int64).min),
    )
    np.minimum.at(first, step, start)
    np.maximum.at(last, step, end)
    kept = np.unique(step)
    kept = kept[np.argsort(first[kept], kind="stable")]
    first, last = first[kept], last[kept]
    follows = steps.start_ps[kept[1:]] == steps.end_ps[kept[:-1]]
    last[:-1] = np.where(follows, first[1:], np.minimum(last[:-1], first[1:]))
    return replace(
        steps,
        start_ps=first,
        end_ps=last,
        names=tuple(steps.names[place] for place in kept.tolist()),
        source=f"{steps.source}, where the device ran them",
        n_dropped=steps.n_dropped + len(steps) - kept.size,
        why_dropped=", or ".join(
            filter(
                None,
                [
                    steps.why_dropped,
                    "they caused no work of a device" if kept.size < len(steps) else "",
                ],
            )
        ),
        sizes=None if steps.sizes is None else steps.sizes[kept],
    )


def _why_untimed(trace: Trace, steps: Steps) -> str:
    """Return why work that the steps called from JAX on a CPU may have ended outside of them."""
    host = Events.of(trace.plane(HOST))
    calls = jax_calls(host)
    if accelerators(trace) or not (steps.of(calls.start) >= 0).any():
        return ""
    if not len(thunks(host)):
        return _UNTIMED.format("the trace has no event of it")
    for one in unlinked_runs(host.plane):
        shown = plural(one.n_runs, "execution")
        called = f"{plural(one.calls_ps.size, 'call')} of {one.module}"
        is_cut_off = one.calls_ps.size > one.n_runs and (steps.of(one.calls_ps) >= 0).any()
        if is_cut_off or one.end_ps > steps.end_ps[-1]:
            return _UNTIMED.format(f"the trace has {called} and {shown}")
    return ""


def launching(steps: Steps, launched: Steps, times_ps: Ints) -> Ints:
    """
    Return the index of the step that the host launched at each time, -1 outside; `steps` are all or
    some of `launched`, as the devices ran them.
    """
    place = {name: index for index, name in enumerate(steps.names)}
    if steps.source == launched.source:  # what follows a last step is called while its work runs on
        return launched.of(times_ps)
    if len(place) < len(steps):
        return steps.of(times_ps)
    index = np.array([*(place.get(name, -1) for name in launched.names), -1], np.int64)
    found: Ints = index[launched.of(times_ps)]
    return found


def _prolonged(steps: Steps, end: Ints, step: Ints) -> Steps:
    """Return the steps, the last of each epoch prolonged to the end of the work that it caused."""
    last = steps.end_ps.copy()
    np.maximum.at(last, step, end)
    limit = np.r_[steps.start_ps[1:], np.iinfo(np.int64).max]
    followed = np.r_[steps.start_ps[1:] <= steps.end_ps[:-1], False]
    last = np.where(followed, steps.end_ps, np.minimum(last, limit))
    return steps if (last == steps.end_ps).all() else replace(steps, end_ps=last)


def _run_keys(events: Events) -> Ints:
    """Combine run_id and queue_id into one number; both are small."""
    return events.integers("run_id", -1) * 64 + events.integers("queue_id")


def _steps_of(host: Events, calls: Events, steps: Steps) -> Ints:
    """Return each host call's step, followed from consumers to producers, -1 outside of steps."""
    consumers, producers = host.having("_c"), host.having("_p")
    made_by = joined(
        _context_keys(consumers, "_ct", "_c"),
        _context_keys(producers, "_pt", "_p"),
        np.arange(len(producers)),
    )
    time = calls.start.copy()
    at = enclosing(consumers, calls)
    again = enclosing(consumers, producers)
    for _ in range(_HOPS):
        known = np.flatnonzero(at >= 0)
        known = known[made_by[at[known]] >= 0]
        if not known.size:
            break
        producer = made_by[at[known]]
        time[known] = producers.start[producer]
        at = np.full(at.size, -1)
        at[known] = again[producer]
    return steps.of(time)


def _context_keys(events: Events, kind: str, number: str) -> Ints:
    """Combine context type, below 64, and id, a hash or counter, into one number that may wrap."""
    return events.integers(number) * 64 + events.integers(kind)
