"""The entry of a profile in a structure file: its metrics, and lists that explain changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_tfperf.baseline.history import rounded
from pytest_tfperf.baseline.store import OPS
from pytest_tfperf.baseline.totals import counted_steps
from pytest_tfperf.baseline.xla_ops import IN_XLA, OUTSIDE_XLA, xla_ops
from pytest_tfperf.differences.profiles import op_counts
from pytest_tfperf.differences.structure import called_functions, op_type_counts, pipeline_labels
from pytest_tfperf.metric_registry import MACHINE, PLATFORM, PROGRAM, Metric
from pytest_tfperf.metrics import op_work
from pytest_tfperf.results import Profile
from pytest_tfperf.values import OF_PLATFORM, Json, Value

LISTS_OF_PLATFORMS = {
    OPS: "FLOPs and types by op",
    "op_types": "ops by type",
    IN_XLA: "ops in XLA by type",
    OUTSIDE_XLA: "ops outside XLA by type",
    "python_functions": "calls by Python function",
}
"""Lists that an entry has for each platform, with their titles; they lie in the detail file."""
LISTS = {"pipeline": "the input pipeline's stages", **LISTS_OF_PLATFORMS}
"""All lists of an entry, with their titles."""


def scope_of(metric: Metric, value: Value) -> str:
    """
    Return where a value holds: that of its metric, unless its programs were made for a platform.

    XLA optimises executables for a platform, and JAX makes a few programs for one (unoptimised.py).

    Args:
        metric: The metric.
        value: The value.
    """
    is_narrower = metric.scope == PROGRAM and value.detail.get(OF_PLATFORM, False)
    return PLATFORM if is_narrower else metric.scope


def stored(profile: Profile, scope: str) -> Json:
    """Return the known metrics of a scope, as they are stored."""
    rows = profile.registry
    known = {
        name: value.number
        for name, value in profile.metrics.items()
        if value.number is not None and (scope == MACHINE or not value.is_measured_bound())
    }
    return {
        name: rounded(number)
        for name, number in known.items()
        if name in rows and scope_of(rows[name], profile.metrics[name]) == scope
    }


def structure_of(profile: Profile, environment: Mapping[str, Any]) -> Json:
    """Return a profile as the entry of a structure file, but for the commit."""
    pipeline = pipeline_labels(profile.tables.get("pipeline"))
    platform = environment["platform"]
    lists = {
        OPS: _ops(profile),
        "op_types": op_type_counts(profile.tables.get("graph")),
        "python_functions": _functions(profile),
        **xla_ops(profile.metrics.get("xla_coverage")),
    }
    return {
        "workload": dict(profile.workload),
        "program": stored(profile, PROGRAM),
        "platform": {platform: stored(profile, PLATFORM)},
        "setting": dict(environment["setting"]),
        **counted_steps(profile),
        **({} if pipeline is None else {"pipeline": pipeline}),
        **{name: {platform: found} for name, found in lists.items() if found is not None},
    }


def _ops(profile: Profile) -> dict[str, float | int] | None:
    """Return the ops of a step by type, place and work, unless they differ from step to step."""
    value = profile.metrics.get("flops")
    if value is None or "low" in value.detail:
        return None
    counts = op_counts(profile.tables.get(op_work.TABLE))
    return counts and {name: rounded(n_ops) for name, n_ops in counts.items()}


def _functions(profile: Profile) -> dict[str, float | int] | None:
    """Return the calls of a step by Python function, unless they differ from step to step."""
    value = profile.metrics.get("python_calls")
    called = called_functions(profile.tables.get("python_calls"))
    if value is None or value.number is None or called is None:
        return None
    return {name: rounded(calls) for name, calls in called.items()}
