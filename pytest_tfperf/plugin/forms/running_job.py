"""Profiles of a running job, which other processes run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_tfperf.analysis.multi_host import analyse_job
from pytest_tfperf.analysis.timing import TRACED_NOTE
from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.metric_evidence import TRACED_TIMES
from pytest_tfperf.plugin.profiles import Profiles
from pytest_tfperf.remote.addresses import Worker
from pytest_tfperf.remote.job import CapturePlan, capture_job
from pytest_tfperf.remote.profiler_service import TraceOptions
from pytest_tfperf.results import Profile

__tracebackhide__ = True


def profile_job(
    profiles: Profiles,
    workers: Sequence[Worker],
    duration_ms: int,
    name: str | None,
    wanted: Wanted,
) -> Profile:
    """
    Trace a running job, and make a profile of each of its workers.

    Args:
        profiles: The profiles of the test.
        workers: The workers; of several, each one's address is added to the name of its profile.
        duration_ms: Duration of the traces in milliseconds.
        name: Name of the profile.
        wanted: Limits; those on times are decided by the traced steps.

    Returns:
        The profile of the first worker.

    Raises:
        CaptureError: If a worker cannot be traced, or ran no step meanwhile.
    """
    several = len(workers) > 1
    names = [f"{name or ''} {w.target}".strip() if several else name for w in workers]
    for own_name in names:
        profiles.check_name(own_name)
    plan = CapturePlan(options=TraceOptions(duration_ms=duration_ms), requires_all=True)
    job = capture_job(workers, plan, profiles.folder)
    if job.errors:
        raise CaptureError("; ".join(map(str, job.errors)))
    analysed, errors = analyse_job(job.traces, wanted.target_step_time)
    if errors:
        raise CaptureError("; ".join(f"{error}; trace longer with ms=" for error in errors))
    timed = wanted.asks_for(TRACED_TIMES)
    for own_name, one, trace in zip(names, analysed, job.traces, strict=True):
        profile = replace(one.profile, name=own_name or "")
        if timed:
            profile = replace(
                one.with_traced_times(), name=profile.name, notes=(*profile.notes, TRACED_NOTE)
            )
        profiles.add_traced(profile, wanted, trace)
    return profiles.results[names[0] or ""][0]
