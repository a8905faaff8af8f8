"""Profiles, records and environments for tests, with as little said as a test needs."""

import itertools

from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.results import Check, Profile, Verdict
from pytest_tfperf.runs import ProfiledTest, Run
from pytest_tfperf.values import Source, Value

WORKLOAD = {"inputs": ["float32[8, 4]"], "batch": 8}
LAPTOP = {
    "platform": "cpu, TensorFlow 2.21, oneDNN on",
    "machine": {
        "accelerators": "none",
        "cpu": "Laptop 3000",
        "cores": 4,
        "tensorflow": "2.21",
        "system": "Linux x86_64",
    },
    "setting": {"tensorflow": "2.21.0", "precision": "float32"},
}
SERVER = {
    "platform": "H100, TensorFlow 2.21, oneDNN on",
    "machine": {
        "accelerators": "H100",
        "cpu": "Server 9000",
        "cores": 64,
        "tensorflow": "2.21",
        "system": "Linux x86_64",
    },
    "setting": {"tensorflow": "2.21.0", "precision": "float32"},
}


def value(metric, number, **detail):
    return Value.of(metric, number, Source.TRACE, **detail)


def profile(name="", workload=WORKLOAD, notes=(), steps=(), **metrics):
    """Of every metric a value: those given as number or `Value`, the rest unknown; a given step_time is a settled one."""
    values = {metric: Value.unknown(metric, "not measured") for metric in METRICS}
    for metric, given in metrics.items():
        settled = {"settled": True} if metric == "step_time" else {}
        values[metric] = given if isinstance(given, Value) else value(metric, given, **settled)
    return Profile(name=name, metrics=values, workload=workload, notes=notes, steps=steps)


def check(
    verdict,
    metric="input_bound",
    sentence="input_bound is 9 %, above the limit of 5 %",
    name="",
    kind="limit",
    **fields,
):
    return Check(
        profile=name,
        metric=metric,
        kind=kind,
        verdict=Verdict(verdict),
        wanted="at most 5 %",
        sentence=sentence,
        **fields,
    )


def record_of(
    *profiles,
    key="test_step",
    file="test_model.py",
    outcome="passed",
    checks=(),
    environment=LAPTOP,
    **fields,
):
    return ProfiledTest(
        nodeid=f"{file}::{key}",
        file=file,
        key=key,
        outcome=outcome,
        profiles=profiles,
        checks=tuple(checks),
        environment=environment,
        **fields,
    )


_SECONDS = itertools.count()


def created(second):
    """When a run was made that began so many seconds after a certain noon."""
    return f"2026-01-31T{12 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}+00:00"


def run_of(*tests, second=None, commit="abc123"):
    """A run that was made after all others, or at a certain second."""
    return Run(
        created=created(next(_SECONDS) if second is None else second), tests=tests, commit=commit
    )
