"""Measure how evenly the devices of a host share the work of a step."""

from __future__ import annotations

import numpy as np

from pytest_tfperf.facts.device_parts import DeviceParts
from pytest_tfperf.facts.device_planes import NO_CATEGORY, names_kinds
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.trace.devices import accelerators
from pytest_tfperf.values import Source, Value


def analyse(evidence: Evidence) -> Findings:
    """Find how unevenly the devices work."""
    if evidence.trace is None:
        return evidence.untraced("step_skew")
    skew = step_skew(evidence.device_parts)
    if skew.number is not None and not all(map(names_kinds, accelerators(evidence.trace))):
        skew = Value.unknown("step_skew", NO_CATEGORY)
    return Findings(values={"step_skew": skew})


def step_skew(parts: DeviceParts) -> Value:
    """
    Return slowest ÷ median over the devices − 1 of their own work, the median over the steps.

    Time in collectives is left out: it makes all devices equally long, however uneven their work
    is.
    """
    n_devices = len(parts.names)
    if n_devices < 2:
        worked = f"{n_devices or 'no'} device of this host worked in the steps"
        logical = "" if n_devices else ", and a trace does not tell logical CPUs apart"
        return Value.unknown("step_skew", f"{worked}{logical}; it takes two to compare")
    middle = np.median(parts.working_ps, axis=0)
    known = middle > 0
    if not known.any():
        return Value.unknown("step_skew", "most devices did no work of their own in the steps")
    skew = parts.working_ps.max(axis=0)[known] / middle[known] - 1
    slowest = parts.names[int(parts.working_ps.sum(axis=1).argmax())]
    detail = (
        {"low": float(skew.min()), "high": float(skew.max())} if skew.min() != skew.max() else {}
    )
    return Value.of(
        "step_skew",
        float(np.median(skew)),
        Source.TRACE,
        n_devices=n_devices,
        slowest=slowest,
        **detail,
    )
