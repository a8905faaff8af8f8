"""Forms of `tf_profile` whose steps other processes run: jobs, workers, backends of Keras."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.metric_evidence import TRACED_TIMES
from pytest_tfperf.metrics.multi_host import analyse_job
from pytest_tfperf.metrics.timing import TRACED_NOTE
from pytest_tfperf.plugin.forms.bare_trace import skip_disabled
from pytest_tfperf.plugin.forms.compare_backends import Backends, compare_backends
from pytest_tfperf.plugin.profiles import Profiles
from pytest_tfperf.remote.addresses import Worker, read_workers
from pytest_tfperf.remote.job import CapturePlan, capture_job
from pytest_tfperf.remote.profiler_service import TraceOptions, check_duration
from pytest_tfperf.results import Profile
from pytest_tfperf.turns.workers import WorkersCall, summarised, who
from pytest_tfperf.variants.comparison import Comparison

__tracebackhide__ = True

_LEAST_WORKERS = 2


class OtherProcesses:
    """
    The forms of `TfProfile` whose steps other processes run.

    Args:
        profiles: The profiles of the test.
        profile_step: Profiles a step in this process, as `tf_profile` does.
    """

    def __init__(self, profiles: Profiles, profile_step: Callable[..., Profile]) -> None:
        self._profiles, self._profile_step = profiles, profile_step

    def capture(
        self,
        workers: str,
        *,
        ms: int = 2000,
        name: str | None = None,
        limits: Mapping[str, Any] | None = None,
    ) -> Profile:
        """
        Trace running processes, and return the profile of the first.

        Tests of this machine that trace the same process wait for each other. The profile of each
        process is in `profiles`; of several, its address is added to the name. Limits on step_time
        and input_wait are decided by the traced steps.

        Args:
            workers: Profiler servers of one job: "grpc://HOST:PORT", with commas between them.
            ms: Duration in milliseconds.
            name: Name of the profile; required from the second profile of a test on.
            limits: Marker arguments for these profiles, which override the marker's.

        Raises:
            CaptureError: If a worker cannot be traced, or ran no step meanwhile.
        """
        wanted = self._profiles.wanted(limits)
        found = read_workers(workers)
        if self._profiles.test.options.disable:
            skip_disabled()
        return _profile_job(self._profiles, found, check_duration(ms), name, wanted)

    def compare_backends(
        self,
        build: Callable[[], Any],
        data: Any,
        *,
        backends: Sequence[str] | None = None,
        batch_size: int = 32,
        name: str | None = None,
        limits: Mapping[str, Any] | None = None,
        warmup: int | None = None,
        trace_steps: int | None = None,
    ) -> Comparison:
        """
        Profile `fit` of one Keras model under several backends, each in a process of its own.

        The processes take turns. A variant named after the backend and `bare` is the same training
        step in the backend's own words, so that the table tells what Keras' loop adds.

        Args:
            build: Returns a compiled model; called in each process.
            data: Arrays `(x, y)`, or what `fit` takes as `x`.
            backends: "tensorflow", "jax", "torch"; by default those that are installed. One
                alone is compared with its bare step.
            batch_size: Examples of a batch of arrays.
            name: Name of the comparison, put before the names of its profiles.
            limits: Marker arguments for each profile.
            warmup, trace_steps: Warm-up and traced steps of each profile.

        Raises:
            CaptureError: If a backend is not installed, or fails in its process.
        """
        wanted = Backends(
            build=build, data=data, batch_size=batch_size, backends=backends, name=name
        )
        options: dict[str, Any] = {"limits": limits, "warmup": warmup, "trace_steps": trace_steps}
        if self._profiles.test.options.disable:
            skip_disabled()
        return compare_backends(self._profiles, self._profile_step, wanted, options)

    def workers(
        self,
        n: int,
        function: Callable[[], Profile],
        *,
        name: str | None = None,
        limits: Mapping[str, Any] | None = None,
    ) -> tuple[Profile, ...]:
        """
        Run the workers of a MultiWorkerMirroredStrategy, and return the profile of each.

        Each worker is a process that runs this test again, up to this call, with the `TF_CONFIG` of
        a cluster of `n` workers on this machine. All run as many steps. `step_skew` tells how much
        the slowest is behind, and the table `workers` what each of them does.

        Args:
            n: Number of workers.
            function: Profiles a step in a worker: `lambda: tf_profile.fit(model, data)`. It makes
                the strategy and the model, and returns the profile.
            name: Name put before `worker 0` and so on, the names of the profiles.
            limits: Marker arguments for these profiles, which override the marker's.

        Raises:
            CaptureError: If a worker fails or ends, with its name and its output.
        """
        test = self._profiles.test
        if n < _LEAST_WORKERS:
            raise CaptureError(f"{n} workers are too few: a cluster has 2 or more")
        if test.options.disable:
            function()
            skip_disabled()
        # a worker is here too, on its way to the function, and decides nothing
        wanted = self._profiles.wanted(None if test.is_in_worker else limits)
        names = [f"{name or ''} {who(index)}".strip() for index in range(n)]
        for own_name in names:
            self._profiles.check_name(own_name)
        found = summarised(test.run_workers(WorkersCall(names=names, measure=function)))
        for own_name, profile in zip(names, found, strict=True):
            self._profiles.add(replace(profile, name=own_name), wanted)
        return tuple(test.results[own_name][0] for own_name in names)


def _profile_job(
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
    names = [f"{name or ''} {w.address}".strip() if several else name for w in workers]
    for own_name in names:
        profiles.check_name(own_name)
    plan = CapturePlan(options=TraceOptions(duration_ms=duration_ms), requires_all=True)
    job = capture_job(workers, plan, profiles.folder, profiles.test.announce)
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
    return profiles.test.results[names[0] or ""][0]
