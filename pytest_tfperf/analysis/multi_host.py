"""Analyse the traces of a job's hosts side by side, aligned by the names of their steps."""

from __future__ import annotations

import multiprocessing
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from pytest_tfperf.analysis.evidence import Evidence
from pytest_tfperf.analysis.profile import profile_of
from pytest_tfperf.errors import TraceError
from pytest_tfperf.machine.cores import usable_cores
from pytest_tfperf.recording import Recording
from pytest_tfperf.results import Profile
from pytest_tfperf.trace.xspace import read_trace
from pytest_tfperf.values import Source, Step, Value

_IDLE = ("collective", "other")  # a host that is ahead waits for the others in these


def profiles_of_job(
    traces: Sequence[Path], target_step_time_s: float | None = None
) -> tuple[list[Profile], list[TraceError]]:
    """
    Return the profiles of one run's traces, one a host, and the errors of unreadable traces.

    Several hosts have `step_skew` over the hosts. They are analysed in processes of their own, as
    many at once as there are cores, and each process holds one trace.
    """
    analyse = partial(_profile, target_step_time_s=target_step_time_s)
    if len(traces) == 1:
        found = [analyse(traces[0])]
    else:
        with ProcessPoolExecutor(
            min(len(usable_cores()), len(traces)), multiprocessing.get_context("spawn")
        ) as pool:
            found = list(pool.map(analyse, traces))
    profiles = [profile for profile in found if isinstance(profile, Profile)]
    if len(profiles) > 1:
        skew = host_skew(profiles)
        profiles = [
            replace(profile, metrics={**profile.metrics, "step_skew": skew}) for profile in profiles
        ]
    return profiles, [error for error in found if isinstance(error, TraceError)]


def host_skew(profiles: Sequence[Profile]) -> Value:
    """
    Return slowest ÷ median host − 1, by the work of each in the steps that all of them have.

    If the hosts of a job wait for each other, their periods are alike. So work is the part of a
    period that is neither collective nor other.
    """
    common = set.intersection(*({step.name for step in profile.steps} for profile in profiles))
    work = [
        sum(_work(step) for step in profile.steps if step.name in common) for profile in profiles
    ]
    if not common:
        return Value.unknown(
            "step_skew", "the hosts have no step in common: number the steps alike on all of them"
        )
    if statistics.median(work) <= 0:
        return Value.unknown(
            "step_skew", "the hosts did no work in the steps that they have in common"
        )
    slowest = max(range(len(work)), key=work.__getitem__)
    return Value.of(
        "step_skew",
        work[slowest] / statistics.median(work) - 1,
        Source.TRACE,
        n_hosts=len(profiles),
        n_steps=len(common),
        where=f"the slowest host is {profiles[slowest].name}",
    )


def _profile(trace: Path, target_step_time_s: float | None) -> Profile | TraceError:
    recording = Recording(
        name=str(trace), trace=trace, workload={}, bare=True, target_step_time_s=target_step_time_s
    )
    try:
        return profile_of(Evidence(recording, read_trace(trace)))
    except TraceError as error:
        return error


def _work(step: Step) -> float:
    return step.period_s - sum(step.parts_s[part] for part in _IDLE)
