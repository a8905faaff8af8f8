"""Count XLA executables that the steps ran and compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pytest_tfperf.analysis import diagnosis
from pytest_tfperf.analysis.evidence import Evidence, Findings
from pytest_tfperf.analysis.host.activity import shows_host
from pytest_tfperf.analysis.steps.detect import Steps
from pytest_tfperf.analysis.xla.executions import XlaUse, compiled_outside
from pytest_tfperf.analysis.xla.recompilations import recompilations
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import Trace
from pytest_tfperf.values import Source, Value

_NOT_WATCHED = "only steps that tf_profile drives are watched from the first to the last"


def analyse(evidence: Evidence) -> Findings:
    """Find what XLA ran in the steps, and what it compiled after the first of them."""
    recording, trace = evidence.completed, evidence.trace
    values = {"xla_compiles": compiles(recording, trace, evidence.steps if trace else None)}
    if trace is None:
        untraced = evidence.untraced("xla_clusters", "xla_launches").values
        return Findings(values={**untraced, **values})
    return Findings(values=values | _run_values(trace, evidence.steps, evidence.xla))


def compiles(recording: Recording, trace: Trace | None, steps: Steps | None) -> Value:
    """
    Return xla_compiles, over all steps after the first.

    A trace tells what was different where XLA compiled again, and what it compiled between steps.

    Args:
        recording: The recording of the steps.
        trace: Their trace, or None.
        steps: The steps of the trace, or None.
    """
    compiled = recording.compiled
    over = counted_over(recording)
    if compiled is None or not over["n_steps"]:
        return Value.unknown("xla_compiles", why_uncounted(recording, "the host"))
    detail: dict[str, Any] = {**over, **_compile_cause(compiled, trace)}
    number = len(compiled)
    if trace is not None and steps is not None and compiled and not recording.bare:
        elsewhere = compiled_outside(trace, steps)
        if elsewhere:
            number, detail["outside_steps"] = max(number - elsewhere, 0), elsewhere
    return Value.of("xla_compiles", number, Source.TRACE, **detail)


def counted_over(recording: Recording) -> dict[str, int]:
    """Return the steps and ends of epochs that are counted over: all after the first step."""
    return {"n_steps": max(recording.n_steps - 1, 0), "n_epoch_ends": recording.n_epochs}


def why_uncounted(recording: Recording, source: str) -> str:
    """
    Return why nothing was counted after the first step; `source` would show it in a bare trace.
    """
    if not recording.bare:
        return recording.ended or _NOT_WATCHED
    if recording.n_steps > 1:
        return f"the trace has no event of {source}, which would show it"
    return "there is no step after the first"


def _run_values(trace: Trace, steps: Steps, use: XlaUse) -> dict[str, Value]:
    """Return xla_clusters and xla_launches."""
    modules = {"executables": sorted(use.modules)}
    why = why_unknown(trace, use)
    clusters, launches = "xla_clusters", "xla_launches"
    return {
        clusters: Value.unknown(clusters, why)
        if why
        else per_step(clusters, use.clusters, None, **modules),
        launches: Value.unknown(launches, why)
        if why and not use.launches.any()
        else per_step(launches, use.launches, steps.sizes, **modules),
    }


def why_unknown(trace: Trace, use: XlaUse) -> str | None:
    """Return why a trace does not tell which executables ran in its steps, or None if it does."""
    if use.modules or (shows_host(trace) and not use.launches.any()):
        return None
    return (
        "the trace does not tell which executables ran"
        if use.launches.any()
        else "the trace has no event of the host"
    )


def _compile_cause(compiled: Sequence[str], trace: Trace | None) -> dict[str, str]:
    return (
        diagnosis.compile_cause(compiled, recompilations(trace, compiled) if trace else ())
        if compiled
        else {}
    )


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
