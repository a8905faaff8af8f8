"""Assign steps to devices: the steps as a device ran them, and device work by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pytest_tfperf.facts.steps import OF_DEVICES, Steps
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.text import plural
from pytest_tfperf.trace.devices import accelerators, gpus, stream_events, tpus
from pytest_tfperf.trace.events import Events, enclosing, joined
from pytest_tfperf.trace.host_events import jax_calls, launched_ps, thunks, unlinked_runs
from pytest_tfperf.trace.xspace import HOST, Plane, Trace


def own_steps(plane: Plane, steps: Steps) -> Steps:
    """
    Return the steps at the times of this plane, by its own `Steps` or `XLA Modules` line.

    The given steps are returned if they come from the host, or if the device has another number of
    steps or ran them at other times.
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


def linked_work(trace: Trace, steps: Steps) -> Iterator[tuple[Events, Ints]]:
    """
    Return, for each device, its events and the step that caused each, -1 if unknown.

    The events are kernels and copies, on a TPU executions, and without any accelerator what JAX ran
    on the host. TensorFlow's calls there end with their work.
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
    Return, for each GPU, its kernels and copies, and the step that caused each, -1 if unknown.

    Threads that copy for JAX run behind the steps, and the trace does not link them.
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
    later.

    Such a step lasts from the first work that it caused to that of the next of its epoch. Steps
    that caused no work are dropped. Else the last step of an epoch is prolonged until its work
    ends. The same holds for JAX on a CPU, whose calls return before their work ends. Where the
    trace does not tell which step caused the work that followed, the steps are untimed.
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
    Return the index of the step that the host launched at each time, -1 outside of steps.

    Args:
        steps: The steps as the devices ran them.
        launched: The steps as the host launched them, of which `steps` are all or some.
        times_ps: Times of the host in picoseconds, shape (n,).
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
    """
    Return the steps with the last of each epoch prolonged to the end of the work that it caused.
    """
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
    """
    Return the step of each host call, followed from consumers to producers, -1 outside of steps.
    """
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
    """
    Combine context type and id into one number.

    Ids are hashes or counters, types are below 64, and an overflow wraps.
    """
    return events.integers(number) * 64 + events.integers(kind)
