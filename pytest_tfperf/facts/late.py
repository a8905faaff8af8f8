"""What was traced and compiled after the first step, and the batch of the pipeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from pytest_tfperf.facts.executions import compiled_late
from pytest_tfperf.facts.host_activity import (
    JAX,
    compiled_again,
    framework,
    jax_retraces,
    shows_runtime,
    traced_again,
    traced_late,
)
from pytest_tfperf.facts.stages import Stage
from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.function_traces import FunctionTrace
from pytest_tfperf.op_types import KEEPS_BATCHES
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import Trace

Retraces = tuple[FunctionTrace, ...]
"""Traces of functions after the first step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """What was traced and compiled after the first step."""

    compiled: tuple[str, ...] | None
    """XLA executables; None if nothing would show them."""
    traced: Retraces | None
    """Traces of functions; None if nothing would show them."""
    n_steps: int
    """Number of steps, the first included."""
    n_epochs: int
    """Epochs that ended meanwhile."""


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
    Return what a bare trace shows.

    Steps that are calls of tf.functions have no first step: there it is each one's first call.

    Args:
        recording: The recording, with the changes of functions that were watched.
        trace: The trace.
        steps: Its steps.
        hidden: The reason why the trace may not show compilations, or None.
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
    Return the retraces that a trace shows with the changes that caused them.

    The last retrace of a function is its last that was watched. Where more were watched than a
    first one besides, it is not known which of them the trace shows.

    Args:
        found: Each retrace in the trace.
        watched: Each trace of a function meanwhile, with its changes and line.
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


def batch_of(stages: Sequence[Stage]) -> int | None:
    """Return the batch of the last batching stage; None if a later stage may change the batches."""
    by_depth = sorted(stages, key=lambda stage: stage.depth)
    behind = list(takewhile(lambda stage: not stage.batch_size, by_depth))
    batch = next((stage.batch_size for stage in by_depth if stage.batch_size), None)
    return None if any(stage.name not in KEEPS_BATCHES for stage in behind) else batch
