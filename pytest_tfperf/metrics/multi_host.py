"""Analyse the traces of a job's hosts side by side, aligned by the names of their steps."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pytest_tfperf.errors import TraceError
from pytest_tfperf.facts.collectives import Key, Runs, Waits, waits_over_hosts
from pytest_tfperf.facts.device_ops import KINDS
from pytest_tfperf.facts.host_activity import JAX, framework, shows_runtime
from pytest_tfperf.facts.parts import DeviceParts
from pytest_tfperf.machine.cores import usable_cores
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.pod import Pod, find_pod, pod_tables
from pytest_tfperf.metrics.profile import profile_of
from pytest_tfperf.metrics.shares import input_wait
from pytest_tfperf.metrics.timing import traced_step
from pytest_tfperf.metrics.validity import valid
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.recording import Asked, Recording
from pytest_tfperf.results import Profile
from pytest_tfperf.text import plural
from pytest_tfperf.trace.devices import gpus, tpus
from pytest_tfperf.trace.logdir import host_of
from pytest_tfperf.trace.xspace import Trace, read_trace
from pytest_tfperf.values import Source, Value

StepName = tuple[str, int]
"""Name of a step, and its number among the steps of that name."""
_TIME = "step_time"
IDLE_PARTS = ("collective", "other")
"""Parts of a step in which a host that is ahead waits for the others."""


@dataclass(frozen=True, slots=True, eq=False)
class _OfHost:
    """The runs of a collective on one host."""

    host: str
    run: Runs
    steps: Ints
    """Place of the host's steps among the common ones, -1 for others."""

    def counts(self, n_steps: int) -> Ints:
        """Return the number of matched runs in each common step."""
        place = self.steps[self.run.step]
        return np.bincount(place[place >= 0], minlength=n_steps)

    def rows(self, even: npt.NDArray[np.bool_]) -> Ints:
        """Return the matched runs in the steps that `even` selects, by step and number."""
        place = self.steps[self.run.step]
        rows = np.flatnonzero((place >= 0) & even[place])
        return rows[np.lexsort((self.run.number[rows], place[rows]))]


def job_devices(hosts: Mapping[str, Pod]) -> Pod | None:
    """
    Return the devices of all hosts in the steps that all have, None without any; parts and waits
    are durations, so that no clocks of hosts are compared.
    """
    known = {name: pod for name, pod in hosts.items() if pod.parts.names}
    named = [_step_names(pod.parts.steps) for pod in known.values()]
    common = [name for name in named[0] if all(name in own for own in named)] if named else []
    if len(known) < 2 or not common:
        return None
    places = {name: place for place, name in enumerate(common)}
    steps = [np.array([places.get(name, -1) for name in own]) for own in named]
    parts = _parts(known, steps, len(common))
    by_key: dict[Key, list[_OfHost]] = {}
    for (host, pod), own in zip(known.items(), steps, strict=True):
        for run in pod.runs:
            by_key.setdefault(run.key, []).append(_OfHost(host, run, own))
    found: list[Runs] = []
    waits: list[Waits] = []
    for of_hosts in by_key.values():
        one = _joined(of_hosts, len(common))
        if one.count.any():
            found.append(one)
            waits.append(waits_over_hosts(one, [each.run for each in of_hosts]))
    hidden = next((pod.hidden for pod in known.values() if pod.hidden), "")
    return Pod(parts, tuple(found), tuple(waits), hidden)


def _step_names(names: Sequence[str]) -> dict[StepName, int]:
    """Return the index of each step by its name."""
    seen: Counter[str] = Counter()
    found = {}
    for place, name in enumerate(names):
        found[name, seen[name]] = place
        seen[name] += 1
    return found


def _parts(hosts: Mapping[str, Pod], steps: Sequence[Ints], n_steps: int) -> DeviceParts:
    """Put the parts of devices together."""
    of_hosts = [pod.parts for pod in hosts.values()]
    orders = [_in_order(own, n_steps) for own in steps]
    first = of_hosts[0]

    def joined(columns: Iterable[Ints]) -> Ints:
        pairs = zip(columns, orders, strict=True)
        return np.concatenate([column[:, order] for column, order in pairs])

    return DeviceParts(
        names=tuple(f"{host}/{name}" for host, pod in hosts.items() for name in pod.parts.names),
        steps=tuple(first.steps[place] for place in orders[0].tolist()),
        n_steps=round(first.n_steps * n_steps / len(first.steps)),
        period_ps=joined(parts.period_ps for parts in of_hosts),
        parts_ps={kind: joined(parts.parts_ps[kind] for parts in of_hosts) for kind in KINDS},
        working_ps=joined(parts.working_ps for parts in of_hosts),
        executing_ps=joined(parts.executing_ps for parts in of_hosts),
        names_kinds=all(parts.names_kinds for parts in of_hosts),
    )


def _joined(of_hosts: Sequence[_OfHost], n_steps: int) -> Runs:
    """Match the runs of one collective across the hosts that ran it, in the common steps."""
    counts = np.array([one.counts(n_steps) for one in of_hosts])
    even = (counts == counts[0]).all(axis=0)
    rows = [one.rows(even) for one in of_hosts]
    first = of_hosts[0]
    return replace(
        first.run,
        devices=tuple(f"{one.host}/{name}" for one in of_hosts for name in one.run.devices),
        count=np.concatenate([one.run.count[:, _in_order(one.steps, n_steps)] for one in of_hosts]),
        total_ps=np.concatenate(
            [one.run.total_ps[:, _in_order(one.steps, n_steps)] for one in of_hosts]
        ),
        step=first.steps[first.run.step[rows[0]]],
        number=first.run.number[rows[0]],
        start_ps=np.empty((0, rows[0].size), np.int64),
        duration_ps=np.concatenate(
            [one.run.duration_ps[:, own] for one, own in zip(of_hosts, rows, strict=True)]
        ),
        one_clock=False,
    )


def _in_order(steps: Ints, n_steps: int) -> Ints:
    """Return the host's indices of the common steps, in their order."""
    return np.argsort(steps, kind="stable")[-n_steps:]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysedTrace:
    """The profile of a trace, and what else the trace tells."""

    profile: Profile
    framework: str = ""
    """Framework that ran the steps; empty if the trace does not show it."""
    devices: str = ""
    """Accelerators with events, as in `8 GPUs`; empty without any."""
    step_time: Value
    """Median period of the traced steps, which the profiler slows down."""
    pod: Pod | None = None
    """Devices of the host, to compare with those of the other hosts."""
    starts_ns: tuple[int, ...] = ()
    """Start of each step, in nanoseconds since 1970 by the host's clock."""

    def with_traced_times(self) -> Profile:
        """Return the profile with step_time and input_wait from the traced steps."""
        metrics = self.profile.metrics
        wait = input_wait(metrics["input_bound"], self.step_time)
        return replace(self.profile, metrics={**metrics, _TIME: self.step_time, "input_wait": wait})


def work_of(profile: Profile) -> dict[str, float]:
    """Return a host's seconds of each step in which it is not idle (`IDLE_PARTS`), by name."""
    work: dict[str, float] = {}
    for step in profile.steps:
        idle_s = sum(step.parts_s[part] for part in IDLE_PARTS)
        work[step.name] = work.get(step.name, 0.0) + step.period_s - idle_s
    return work


def analyse_job(
    traces: Sequence[Path],
    target_step_time_s: float | None = None,
    done: Callable[[Path], None] | None = None,
) -> tuple[list[AnalysedTrace], list[TraceError]]:
    """
    Analyse one run's traces, one a host, in parallel processes, and return errors of unreadable
    ones; several hosts have `step_skew`, and the first has the job's tables (`job_…`); `done` gets
    each.
    """
    found = []
    for trace, one in zip(traces, _analysed(traces, target_step_time_s), strict=True):
        found.append(one)
        if done is not None:
            done(trace)
    analysed = [one for one in found if isinstance(one, AnalysedTrace)]
    if len(analysed) > 1:
        skew = host_skew([(one.profile.name, work_of(one.profile)) for one in analysed])
        skewed = [{**one.profile.metrics, "step_skew": skew} for one in analysed]
        analysed = [
            replace(one, profile=replace(one.profile, metrics=metrics))
            for one, metrics in zip(analysed, skewed, strict=True)
        ]
        analysed[0] = replace(analysed[0], profile=_with_job(analysed))
    return analysed, [error for error in found if isinstance(error, TraceError)]


def _analysed(
    traces: Sequence[Path], target_step_time_s: float | None
) -> Iterator[AnalysedTrace | TraceError]:
    """Analyse the traces in their order; several in processes of their own."""
    analyse = partial(_analyse, target_step_time_s=target_step_time_s)
    if len(traces) == 1:
        yield analyse(traces[0])
        return
    import multiprocessing  # not for a single trace
    from concurrent.futures import ProcessPoolExecutor

    n_processes = min(len(usable_cores()), len(traces))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(n_processes, spawn) as pool:
        yield from pool.map(analyse, traces)


def analyse_trace(trace: Trace, target_step_time_s: float | None = None) -> AnalysedTrace:
    """Analyse one host's trace in this process; raises TraceError without a step."""
    recording = Recording(
        name=trace.path,
        trace=Path(trace.path),
        workload={},
        bare=True,
        framework=framework(trace),
    )
    evidence = Evidence(recording, trace, asked=Asked(target_step_time_s=target_step_time_s))
    profile = profile_of(evidence)
    steps = evidence.steps
    step_time = valid({_TIME: traced_step(steps)}, evidence)[_TIME]
    return AnalysedTrace(
        profile=profile,
        framework=_shown_framework(evidence, trace),
        devices=_devices(trace),
        step_time=step_time,
        pod=find_pod(evidence).without_starts(),
        starts_ns=()
        if steps.why_untimed
        else tuple((trace.origin_ns + steps.start_ps // 1000).tolist()),
    )


def host_skew(hosts: Sequence[tuple[str, Mapping[str, float]]]) -> Value:
    """
    Return slowest ÷ median host − 1, by the work of each in the steps that all of them have, in one
    unit: hosts that wait for each other have steps of equal periods.
    """
    common = set.intersection(*(set(steps) for _, steps in hosts))
    work = [sum(steps[name] for name in common) for _, steps in hosts]
    if not common:
        return Value.unknown(
            "step_skew", "the hosts have no step in common: number the steps alike on all of them"
        )
    median = statistics.median(work)
    if median <= 0:
        return Value.unknown(
            "step_skew", "the hosts did no work in the steps that they have in common"
        )
    slowest = max(range(len(work)), key=work.__getitem__)
    return Value.of(
        "step_skew",
        work[slowest] / median - 1,
        Source.TRACE,
        n_hosts=len(hosts),
        n_steps=len(common),
        where=f"the slowest host is {hosts[slowest][0]}",
    )


def _with_job(analysed: Sequence[AnalysedTrace]) -> Profile:
    """Return the first profile with the tables of all hosts' devices, before its own tables."""
    names = [host_of(Path(one.profile.name)) for one in analysed]
    if len(set(names)) < len(names):
        names = [one.profile.name for one in analysed]
    pods = zip(names, (one.pod for one in analysed), strict=True)
    job = job_devices({name: pod for name, pod in pods if pod is not None})
    profile = analysed[0].profile
    tables = pod_tables(job, "job_", f", {len(analysed)} hosts") if job else {}
    return replace(profile, tables={**tables, **profile.tables})


def _analyse(path: Path, target_step_time_s: float | None) -> AnalysedTrace | TraceError:
    try:
        return analyse_trace(read_trace(path), target_step_time_s)
    except TraceError as error:
        return error


def _shown_framework(evidence: Evidence, trace: Trace) -> str:
    """Return the framework if the trace shows it, and nothing by default."""
    return evidence.framework if evidence.framework == JAX or shows_runtime(trace) else ""


def _devices(trace: Trace) -> str:
    """Name the accelerators of a trace."""
    counts = {"GPU": len(gpus(trace)), "TPU core": len(tpus(trace))}
    return ", ".join(plural(n, kind) for kind, n in counts.items() if n)
