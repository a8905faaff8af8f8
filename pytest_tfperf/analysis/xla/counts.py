"""Count XLA executables that the steps ran and compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pytest_tfperf.analysis import diagnosis
from pytest_tfperf.analysis.evidence import Evidence, Findings
from pytest_tfperf.analysis.xla.executions import compiled_outside
from pytest_tfperf.analysis.xla.recompilations import recompilations
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.recording import Recording
from pytest_tfperf.values import Source, Value

_NOT_WATCHED = "only steps that tf_profile drives are watched from the first to the last"


def analyse(evidence: Evidence) -> Findings:
    """Find what XLA ran in the steps, and what it compiled after the first of them."""
    values = {"xla_compiles": compiles(evidence)}
    if evidence.trace is None:
        untraced = evidence.untraced("xla_clusters", "xla_launches").values
        return Findings(values={**untraced, **values})
    return Findings(values=values | _run_values(evidence))


def compiles(evidence: Evidence) -> Value:
    """
    Return xla_compiles, over all steps after the first.

    A trace tells what was different where XLA compiled again, and what it compiled between steps.
    """
    recording, trace = evidence.completed, evidence.trace
    compiled, over = recording.compiled, counted_over(recording)
    hidden = evidence.why_compilations_hidden if trace else None
    if hidden and not compiled and over["n_steps"]:
        return Value.unknown("xla_compiles", hidden)
    if compiled is None or not over["n_steps"]:
        return Value.unknown("xla_compiles", why_uncounted(recording, "the host"))
    detail: dict[str, Any] = {**over, **_compile_cause(compiled, evidence)}
    number = len(compiled)
    if trace is not None and compiled and not recording.bare:
        elsewhere = compiled_outside(trace, evidence.steps)
        if elsewhere:
            number, detail["outside_steps"] = max(number - elsewhere, 0), elsewhere
    steps = steps_of_traces(recording, number)
    return Value.of("xla_compiles", number, Source.TRACE, **detail, **steps)


def counted_over(recording: Recording) -> dict[str, int]:
    """Return the steps and ends of epochs that are counted over: all after the first step."""
    return {"n_steps": max(recording.n_steps - 1, 0), "n_epoch_ends": recording.n_epochs}


def steps_of_traces(recording: Recording, number: int) -> dict[str, Any]:
    """
    Return the steps of the events of a total as a detail, if they are those of the traces.

    Where as many executables were compiled as functions traced, each was compiled for one of these.

    Args:
        recording: The recording of the steps.
        number: The total.
    """
    traced = recording.traced
    if not number or traced is None or len(traced) != number or recording.bare:
        return {}
    return {"at_steps": [step for _, step, _ in traced]}


def why_uncounted(recording: Recording, source: str) -> str:
    """
    Return why nothing was counted after the first step; `source` would show it in a bare trace.
    """
    if not recording.bare:
        return recording.ended or _NOT_WATCHED
    if recording.n_steps > 1:
        return f"the trace has no event of {source}, which would show it"
    return "there is no step after the first"


def _run_values(evidence: Evidence) -> dict[str, Value]:
    """Return xla_clusters and xla_launches."""
    steps, use, why = evidence.steps, evidence.xla, evidence.why_xla_unknown
    modules = {"executables": sorted(use.modules)}
    clusters, launches = "xla_clusters", "xla_launches"
    return {
        clusters: Value.unknown(clusters, why)
        if why
        else per_step(clusters, use.clusters, None, **modules),
        launches: Value.unknown(launches, why)
        if why and not use.launches.any()
        else per_step(launches, use.launches, steps.sizes, **modules),
    }


def _compile_cause(compiled: Sequence[str], evidence: Evidence) -> dict[str, str]:
    if not compiled:
        return {}
    if evidence.trace is None:
        return diagnosis.compile_cause(compiled)
    changes = recompilations(evidence.trace, compiled)
    return diagnosis.compile_cause(compiled, changes, evidence.framework)


def per_step(metric: str, counts: Ints, sizes: Ints | None, **detail: Any) -> Value:
    """
    Return the median over the steps, with the smallest and largest if they differ.

    Args:
        metric: Name of the metric.
        counts: Count of each step, shape (n_steps,).
        sizes: Number of steps that loop inside each, or None.
    """
    each = counts / (np.ones(1) if sizes is None else np.maximum(sizes, 1))
    if each.min() != each.max():
        detail |= {"low": float(each.min()), "high": float(each.max())}
    return Value.of(metric, float(np.median(each)), Source.TRACE, n_steps=len(each), **detail)
