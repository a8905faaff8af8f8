"""What was traced and compiled after the first step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pytest_tfperf.facts.host_activity import JAX, framework, shows_runtime
from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.function_traces import FunctionTrace
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.events import Events, enclosing
from pytest_tfperf.trace.host_events import (
    called_function,
    compilations,
    compiled_modules,
    jax_calls,
    shows_jax_calls,
)
from pytest_tfperf.trace.xspace import HOST, Trace

Retraces = tuple[FunctionTrace, ...]
"""Traces of functions after the first step."""
_LOWERS = "lower_sharding_computation"
"""Name of the events in which JAX lowers a traced function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """What was traced and compiled after the first step."""

    compiled: tuple[str, ...] | None
    """XLA executables; None if nothing would show them."""
    traced: Retraces | None
    """Of functions; None if nothing would show them."""
    n_steps: int
    """The first included."""
    n_epochs: int


def watched(recording: Recording) -> Late:
    """Return what was watched while the steps ran."""
    return Late(
        compiled=recording.compiled,
        traced=recording.traced,
        n_steps=recording.n_steps,
        n_epochs=recording.n_epochs,
    )


def shown(recording: Recording, trace: Trace, steps: Steps, hidden: str | None) -> Late:
    """
    Return what a bare trace shows; where steps are calls of tf.functions, the first of each is a
    first step; `hidden` is why compilations may not show, or None.
    """
    unmarked = steps.source == "function" and framework(trace) != JAX
    compiled = traced = None
    found = tuple(compiled_again(trace) if unmarked else compiled_late(trace, steps))
    if found or not hidden:
        compiled = found
    if framework(trace) == JAX:
        traced = jax_retraces(trace, steps, bool(hidden))
    elif shows_runtime(trace):
        traced = tuple(traced_again(trace) if unmarked else traced_late(trace, steps))
    if traced is not None:
        traced = with_changes(traced, recording.traced or ())
    return Late(compiled=compiled, traced=traced, n_steps=len(steps), n_epochs=steps.n_epochs - 1)


def with_changes(found: Retraces, watched: Retraces) -> Retraces:
    """
    Return a trace's retraces with their causes: the last ones watched of the function, unless more
    were watched than a first one besides.
    """
    by_name: dict[str, list[FunctionTrace]] = {}
    for one in watched:
        by_name.setdefault(one.function, []).append(one)
    n_found = Counter(one.function for one in found)
    known = {
        name: iter(of_it[-n_found[name] :])
        for name, of_it in by_name.items()
        if n_found[name] <= len(of_it) <= n_found[name] + 1
    }
    nothing: Iterator[FunctionTrace] = iter(())
    return tuple(
        next(known.get(one.function, nothing), one)._replace(step=one.step) for one in found
    )


def traced_late(trace: Trace, steps: Steps) -> list[FunctionTrace]:
    """Return every tf.function trace in any step of the trace but its first."""
    host = Events.of(trace.plane(HOST))
    building = host.called("tf.function-graph_building")
    building = building.where(steps.of(building.start) > 0)
    calls = host.having("tf_function_call")
    caller, names = enclosing(calls, building), calls.names
    named = [names[place] if place >= 0 else "function" for place in caller.tolist()]
    return [
        FunctionTrace(name, step)
        for name, step in zip(named, steps.of(building.start).tolist(), strict=True)
    ]


def traced_again(trace: Trace) -> list[FunctionTrace]:
    """Return every call that traced its tf.function, except its first call, by its number."""
    calls, number = _calls(Events.of(trace.plane(HOST)))
    modes = calls.texts("tf_function_call")
    return [
        FunctionTrace(name, n)
        for name, n, mode in zip(calls.names, number, modes, strict=True)
        if n and mode.startswith("traced")
    ]


def jax_retraces(trace: Trace, steps: Steps, hidden: bool) -> tuple[FunctionTrace, ...] | None:
    """
    Return every call of JAX traced in a step after the first; None if no event tells what JAX
    lowered (jax/_src/interpreters/pxla.py), or in which call, and `hidden` or a compilation says it
    may have.
    """
    host = Events.of(trace.plane(HOST))
    calls, lowered = jax_calls(host).sorted(), host.called(_LOWERS)
    if not len(lowered) and (hidden or len(compilations(host))):
        return None
    if len(lowered) and not shows_jax_calls(host):
        return None
    traced = set(enclosing(calls, lowered).tolist())
    step_of = steps.of(calls.start).tolist()
    return tuple(
        FunctionTrace(called_function(event), step)
        for place, (event, step) in enumerate(zip(calls.names, step_of, strict=True))
        if place in traced and step > 0
    )


def compiled_again(trace: Trace) -> list[str]:
    """Return the functions compiled in a second or later call, or "executable" outside of calls."""
    host = Events.of(trace.plane(HOST))
    calls, number = _calls(host)
    compiled = compilations(host)
    caller, names = enclosing(calls, compiled), calls.names
    known = [names[place] if place >= 0 else "executable" for place in caller.tolist()]
    return [
        name
        for name, place in zip(known, caller.tolist(), strict=True)
        if place < 0 or number[place]
    ]


def _calls(host: Events) -> tuple[Events, list[int]]:
    """Return calls of tf.functions by time, and each one's number among its function's, from 0."""
    calls = host.having("tf_function_call").sorted()
    seen: Counter[str] = Counter()
    number = []
    for name in calls.names:
        number.append(seen[name])
        seen[name] += 1
    return calls, number


def compiled_late(trace: Trace, steps: Steps) -> list[str]:
    """Return the executables that were compiled in any step of the trace but its first."""
    compiled = compilations(Events.of(trace.plane(HOST)))
    compiled = compiled.where(steps.of(compiled.start) > 0)
    return [name or "executable" for name in compiled_modules(compiled)]
