"""What is counted in the steps: executables run and compiled, functions traced, ops run eagerly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pytest_tfperf.analysis import diagnosis
from pytest_tfperf.analysis.host.activity import (
    compiled_again,
    eager_ops,
    shows_runtime,
    traced_again,
    traced_late,
)
from pytest_tfperf.analysis.steps.detect import Steps
from pytest_tfperf.analysis.xla.executions import XlaUse, compiled_late, compiled_outside
from pytest_tfperf.analysis.xla.recompilations import recompilations
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import HOST, Trace
from pytest_tfperf.values import Source, Value


def with_counts(recording: Recording, trace: Trace, steps: Steps) -> Recording:
    """A bare trace's own counts of what was compiled and traced after its first step; of function calls, after each function's first."""
    if not recording.bare:
        return recording
    unmarked = steps.source == "function"
    compiled = (
        tuple(compiled_again(trace) if unmarked else compiled_late(trace, steps))
        if _shows_host(trace)
        else None
    )
    traced = (
        tuple(traced_again(trace) if unmarked else traced_late(trace, steps))
        if shows_runtime(trace)
        else None
    )
    return replace(
        recording, compiled=compiled, traced=traced, n_steps=len(steps), n_epochs=steps.n_epochs - 1
    )


def counted_values(recording: Recording, trace: Trace | None = None) -> dict[str, Value]:
    """xla_compiles and retraces: over all steps after the first; a trace tells what was different where XLA compiled again."""
    over = {"n_steps": max(recording.n_steps - 1, 0), "n_epoch_ends": recording.n_epochs}
    compiled, traced = recording.compiled, recording.traced
    if recording.bare:
        nothing = (
            "the trace has no event of {}, which would show it"
            if over["n_steps"]
            else "there is no step after the first"
        )
    else:
        nothing = (
            recording.ended
            or "only steps that tf_profile drives are watched from the first to the last"
        )
    if not over["n_steps"]:
        compiled = traced = None
    return {
        "xla_compiles": Value.unknown("xla_compiles", nothing.format("the host"))
        if compiled is None
        else Value.of(
            "xla_compiles", len(compiled), Source.TRACE, **over, **_compile_cause(compiled, trace)
        ),
        "retraces": Value.unknown("retraces", nothing.format("TensorFlow's runtime"))
        if traced is None
        else Value.of(
            "retraces",
            len(traced),
            Source.TRACE if recording.bare else Source.GRAPH,
            **over,
            **(diagnosis.retrace_cause(traced) if traced else {}),
        ),
    }


def xla_values(trace: Trace, steps: Steps, use: XlaUse, recording: Recording) -> dict[str, Value]:
    """xla_clusters and xla_launches; and xla_compiles again where some were compiled while no step ran."""
    modules = {"executables": sorted(use.modules)}
    why = why_unknown(trace, use)
    values = {
        "xla_clusters": Value.unknown("xla_clusters", why)
        if why
        else per_step("xla_clusters", use.clusters, None, **modules),
        "xla_launches": Value.unknown("xla_launches", why)
        if why and not use.launches.any()
        else per_step("xla_launches", use.launches, steps.sizes, **modules),
    }
    if recording.compiled and not recording.bare and (elsewhere := compiled_outside(trace, steps)):
        counted = counted_values(recording, trace)["xla_compiles"]
        values["xla_compiles"] = Value.of(
            "xla_compiles",
            max(len(recording.compiled) - elsewhere, 0),
            Source.TRACE,
            **counted.detail,
            outside_steps=elsewhere,
        )
    return values


def why_unknown(trace: Trace, use: XlaUse) -> str | None:
    """Why a trace does not tell which executables ran in its steps; None where it does, also where none ran."""
    if use.modules or (_shows_host(trace) and not use.launches.any()):
        return None
    return (
        "the trace does not tell which executables ran"
        if use.launches.any()
        else "the trace has no event of the host"
    )


def eager_value(trace: Trace, steps: Steps, seen: Sequence[tuple[str, str | None, int]]) -> Value:
    """eager_ops; `seen` are those of one step with the user's lines, as far as that is known."""
    if not _shows_host(trace):
        return Value.unknown("eager_ops", "the trace has no event of the host")
    counts, types = eager_ops(trace, steps)
    return per_step(
        "eager_ops", counts, steps.sizes, **(diagnosis.eager_cause(types, seen) if types else {})
    )


def _compile_cause(compiled: Sequence[str], trace: Trace | None) -> dict[str, str]:
    return (
        diagnosis.compile_cause(compiled, recompilations(trace, compiled) if trace else ())
        if compiled
        else {}
    )


def _shows_host(trace: Trace) -> bool:
    host = trace.plane(HOST)
    return host is not None and host.start_ps.size > 0


def per_step(metric: str, counts: Ints, sizes: Ints | None, **detail: Any) -> Value:
    """The median over the steps, with the smallest and largest where they differ; `sizes` says how many steps loop inside each."""
    each = counts / (np.ones(1) if sizes is None else np.maximum(sizes, 1))
    if each.min() != each.max():
        detail |= {"low": float(each.min()), "high": float(each.max())}
    return Value.of(metric, float(np.median(each)), Source.TRACE, n_steps=len(each), **detail)
