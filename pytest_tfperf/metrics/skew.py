"""Measure how evenly the devices of a host share the work of a step."""

from __future__ import annotations

import numpy as np

from pytest_tfperf.facts.busy_times import DeviceTimes
from pytest_tfperf.facts.device_planes import NO_CATEGORY, names_kinds
from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.quantities import RATIO, SECONDS, SHARE
from pytest_tfperf.trace.devices import accelerators
from pytest_tfperf.values import Column, Source, Table, Value


def analyse(evidence: Evidence) -> Findings:
    """Find how unevenly the devices work."""
    if evidence.trace is None:
        return evidence.untraced("step_skew")
    times, planes = evidence.device_times, accelerators(evidence.trace)
    skew = step_skew(times)
    if skew.number is not None and not all(map(names_kinds, planes)):
        skew = Value.unknown("step_skew", NO_CATEGORY)
    tables = {"devices": device_table(times, evidence.steps)} if times.names else {}
    return Findings(values={"step_skew": skew}, tables=tables)


def step_skew(times: DeviceTimes) -> Value:
    """
    Return slowest ÷ median over the devices − 1 of their own work, the median over the steps.

    Time in collectives is left out: it makes all devices equally long, however uneven their work
    is.
    """
    if len(times.names) < 2:
        worked = f"{len(times.names) or 'no'} device of this host worked in the steps"
        logical = "" if times.names else ", and a trace does not tell logical CPUs apart"
        return Value.unknown("step_skew", f"{worked}{logical}; it takes two to compare")
    middle = np.median(times.working, axis=0)
    known = middle > 0
    if not known.any():
        return Value.unknown("step_skew", "most devices did no work of their own in the steps")
    skew = times.working.max(axis=0)[known] / middle[known] - 1
    slowest = times.names[int(times.working.sum(axis=1).argmax())]
    detail = (
        {"low": float(skew.min()), "high": float(skew.max())} if skew.min() != skew.max() else {}
    )
    return Value.of(
        "step_skew",
        float(np.median(skew)),
        Source.TRACE,
        n_devices=len(times.names),
        slowest=slowest,
        **detail,
    )


def device_table(times: DeviceTimes, steps: Steps) -> Table:
    """
    Tabulate the devices by their own work: seconds per step, share of the period, ratio to the
    median.
    """
    columns = [
        Column("device", "device"),
        Column("busy", "busy", SECONDS),
        Column("working", "working", SECONDS),
        Column("busy_share", "busy share", SHARE),
        Column("over_median", "more than the median", RATIO),
    ]
    period, n_steps = float(steps.period_ps.sum()) * 1e-12, steps.n_steps
    working = times.working.sum(axis=1)
    middle = float(np.median(working)) if working.size else 0.0
    rows = [
        (
            times.names[i],
            float(times.busy[i].sum()) / n_steps,
            float(working[i]) / n_steps,
            min(float(times.busy[i].sum()) / period, 1.0) if period else None,
            float(working[i]) / middle - 1 if middle else None,
        )
        for i in np.argsort(-working, kind="stable").tolist()
    ]
    return Table.of("devices", columns, rows)
