"""Make, name and keep the profiles of one test, for every form of `tf_profile`."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pytest_tfperf.capture.inspection import StepInspection
from pytest_tfperf.capture.loop import mean_batch
from pytest_tfperf.capture.sessions import (
    ReadTraces,
    Session,
    keep_trace,
    read_session,
    read_sessions,
    stop_quietly,
    user_session_runs,
    xla_shown,
)
from pytest_tfperf.capture.windows import WindowHooks, Windows
from pytest_tfperf.checks.arguments import REGRESSIONS, Wanted
from pytest_tfperf.compiler.retracing import traces_reported_to
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.facts.host_activity import frameworks_of
from pytest_tfperf.frameworks.framework import JAX, PYTORCH, TENSORFLOW
from pytest_tfperf.frameworks.in_use import (
    check_any_in_use,
    in_use,
    other_frameworks,
    untraced_names,
)
from pytest_tfperf.frameworks.jax import runs_in_several_processes
from pytest_tfperf.frameworks.jax_objects import jax_objects
from pytest_tfperf.frameworks.jax_traces import jax_compilations_reported_to, jax_traces_reported_to
from pytest_tfperf.frameworks.torch import torch_traces_reported_to
from pytest_tfperf.function_traces import Report
from pytest_tfperf.machine.locks import measuring_anyway
from pytest_tfperf.metric_registry import nearest
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.profile import OnDemand, profile_of
from pytest_tfperf.metrics.shares import settling_steps
from pytest_tfperf.metrics.validity import refuse_other_frameworks
from pytest_tfperf.plugin.option_values import plan_of
from pytest_tfperf.plugin.profiled_item import ProfiledItem
from pytest_tfperf.recording import ALL, Asked, Fetches, Recording
from pytest_tfperf.results import Profile
from pytest_tfperf.stats.slope import FEWEST
from pytest_tfperf.temporary import TemporaryFolder

__tracebackhide__ = True

_FROM_GRAPPLER = ("graph_ops", "graph_reduction")
_OF_WINDOWS = ("warmup", "steps", "trace_steps", "latency")
_REPORTED = {
    TENSORFLOW: traces_reported_to,
    JAX: jax_traces_reported_to,
    PYTORCH: torch_traces_reported_to,
}
"""What reports the functions that each framework traces."""


class Profiles:
    """Makes the profiles of one test, one after the other."""

    def __init__(self, test: ProfiledItem) -> None:
        self.test = test
        self.recordings: dict[str, tuple[Recording, StepInspection]] = {}
        self._on_demand: list[OnDemand] = []
        self._temporary = TemporaryFolder(test.scratch)
        self.folder = self._temporary.path
        self.plan = plan_of(test.options)
        """Windows of profiles that set none."""
        self._open: list[Windows] = []
        self._tracing = False
        self._user_session = user_session_runs()

    def close(self) -> None:
        """Stop whatever still runs and remove what is not kept."""
        for windows in self._open:
            windows.close()
        # Both refer to iterators of the steps, which must be freed before the interpreter exits.
        self._open.clear()
        self.recordings.clear()
        self.test.calls.clear()
        for on_demand in self._on_demand:
            on_demand.close()
        self._on_demand.clear()
        if not self._user_session and user_session_runs():
            stop_quietly()  # the test left a session of its own running
        self._temporary.close()

    def take_name(self, name: str | None) -> str:
        """Take the name that `free_name` returns for the next profile, and return it."""
        taken = self.free_name(name)
        self.test.names.add(taken)
        return taken

    def free_name(self, name: str | None) -> str:
        """
        Return the name of the next profile: of those without one "", then "2", "3" and so on;
        raises CaptureError if it is taken, or a profile is being made already.
        """
        if self._open or self._tracing:
            raise CaptureError(
                "a profile of this test is being made already;"
                " profiles cannot be nested, since there is one profiler"
            )
        taken = self.test.names
        if name is None:
            return next(one for one in chain([""], map(str, count(2))) if one not in taken)
        if name in taken:
            raise CaptureError(
                f"this test has a profile named {name!r} already; names are {sorted(taken)}"
            )
        return name

    def wanted(self, limits: Mapping[str, Any] | None, **options: Any) -> Wanted:
        """
        Return the marker's arguments, overridden by a profile's own limits and options; raises
        CaptureError if nothing would decide the limits.
        """
        test = self.test
        if limits and test.is_in_worker:
            raise CaptureError(
                "limits= of a profile in a worker decides nothing: give it to tf_profile.workers"
            )
        for name in (*REGRESSIONS, "autocluster"):
            if name in (limits or {}):
                raise CaptureError(
                    f"{name} holds for all profiles of a test: give it to the marker"
                )
        given = {key: value for key, value in options.items() if value is not None}
        wanted = test.wanted
        if limits or given:
            arguments = {**wanted.given, **(limits or {}), **given}
            wanted = Wanted.read(arguments, test.registry.rows)
        if test.is_decided and wanted.limits:
            raise CaptureError("the limits of this test are decided: profile before it ends")
        test.asked += [wanted.limits] if limits else []
        return wanted

    def windows(
        self,
        name: str,
        wanted: Wanted,
        kind: str,
        steps_per_call: int,
        available: int | None = None,
        goes_on: bool = False,
    ) -> AbstractContextManager[Windows]:
        """
        Start the windows of a loop, which the context closes, of `available` calls, None if
        unknown, or more if it `goes_on`; raises CaptureError without a framework, or beside another
        profiler.
        """
        chosen = {key: getattr(wanted, key) for key in _OF_WINDOWS}
        plan = replace(
            self.plan,
            **{key: value for key, value in chosen.items() if value is not None},
            steps_per_call=steps_per_call,
            counts_slow_steps=self.test.whole or wanted.asks_for(("python_calls",)),
            least_blocks=FEWEST if wanted.asks_for(("memory_growth",)) else 1,
        )
        plan = plan.in_step() if self._runs_in_step() else plan
        check_any_in_use()
        xla_shown(self.test.scratch)  # which also starts the runtime, before a first step
        return self._opened(
            Windows(
                plan if available is None else plan.cut_to(available, goes_on),
                self.folder,
                kind,
                self._hooks(name, wanted),
            )
        )

    def _runs_in_step(self) -> bool:
        """Return whether other processes run as many steps, since they wait for each other."""
        return self.test.is_in_worker or runs_in_several_processes()

    def _hooks(self, name: str, wanted: Wanted) -> WindowHooks:
        """Return what the windows of a profile call."""
        test = self.test

        def settling(traces: ReadTraces, before: int, fetches: Fetches | None) -> int:
            # The buffers of each worker drain in a number of steps of its own.
            if self._runs_in_step():
                return 0
            first = frameworks_of(traces, untraced_names())[0]
            if first not in traces:
                return 0
            beside = None if first == TENSORFLOW else traces.get(TENSORFLOW)
            return settling_steps(traces[first], before, fetches, beside)

        client = test.child.turn_client(name, wanted.max_regression) if test.child else None
        return WindowHooks(
            settling_steps=settling,
            announce=test.announce,
            # Processes that wait for each other cannot wait for a lock one after the other.
            exclusive=measuring_anyway if runs_in_several_processes() else test.exclusive,
            turn_client=client,
            most_retraces=wanted.most("retraces"),
            most_compiles=wanted.most("xla_compiles"),
            most_growth=wanted.most("memory_growth"),
        )

    @contextmanager
    def _opened(self, windows: Windows) -> Iterator[Windows]:
        self._open.append(windows)
        try:
            with (
                traces_reported(windows.function_traced) as windows.watched,
                jax_compilations_reported_to(windows.executable_compiled),
            ):
                yield windows
        finally:
            windows.close()
            self._open.remove(windows)

    def start_session(self) -> Session:
        """Start a trace, which the caller ends."""
        return Session(self.folder)

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Trace the block without windows, under the machine lock; discard a failed trace."""
        with self.test.exclusive(self.test.announce):
            session = self.start_session()
            self._tracing = True
            try:
                yield session
            except BaseException:
                session.discard()
                raise
            finally:
                self._tracing = False

    def finish(
        self,
        windows: Windows,
        name: str,
        wanted: Wanted,
        result: Any,
        workload: Mapping[str, Any],
        examples: float | None,
    ) -> Profile:
        """
        Return the profile of windows that ended; a step's `examples` default to the batch size.
        """
        observations = windows.observations
        traces = windows.read or read_sessions(observations.traces or observations.cold)
        ran = frameworks_of(traces, untraced_names()) or tuple(one.name for one in in_use())[:1]
        held = jax_objects(ran[:1])
        inspection = StepInspection(
            observations.calls,
            observations.probe,
            workload,
            windows.plan.max_seconds,
            asks_for_ablation(wanted),
            ended=None if observations.traces else observations.ended,
            programs=held.programs,
        )
        if examples is None:
            epoch = windows.epochs.length if windows.plan.steps_per_call == 1 else None
            examples = mean_batch(observations.elements.kept, epoch) or workload.get("batch")
        more = {"workload": workload, "result": result, "examples_per_step": examples}
        recording = windows.recording(name, ran, own_functions=held.own_functions, **more)
        return self.store(recording, inspection, wanted, traces)

    def store(
        self, recording: Recording, inspection: StepInspection, wanted: Wanted, read: ReadTraces
    ) -> Profile:
        """Analyse a recording, and keep its profile; raises TraceError if there is no step."""
        test, asked = self.test, _asked(wanted)
        recording = replace(
            recording,
            notes=test.notes + recording.notes,
            frameworks=other_frameworks(),
            xla_shown=xla_shown(test.scratch).get(recording.framework),
        )
        evidence = evidence_of(recording, inspection, read, asked)
        refuse_other_frameworks(evidence)
        on_demand = None
        if not test.whole:
            again = functools.partial(evidence_of, recording, inspection, asked=asked)
            on_demand = OnDemand(asked.metrics or (), again)
            self._on_demand.append(on_demand)
        profile = test.registry.measured(profile_of(evidence, on_demand))
        test.results[recording.name] = profile, wanted.limits
        test.frameworks.add(recording.framework)
        self.recordings[recording.name] = recording, inspection
        if recording.trace:
            self._keep(recording.trace, recording.name)
        return test.results[recording.name][0]

    def _keep(self, trace: Path, name: str) -> None:
        """Keep the trace of a profile, if traces are kept."""
        test = self.test
        if test.kept_traces is not None and (test.child is None or test.child.keeps(name)):
            self.add_file(name, "trace", keep_trace(trace, test.kept_traces, name))

    def add(self, profile: Profile, wanted: Wanted) -> None:
        """Keep a profile that was made in another process."""
        self.test.results[self.take_name(profile.name)] = profile, wanted.limits

    def add_traced(self, profile: Profile, wanted: Wanted, trace: Path) -> None:
        """Keep a profile of a trace that another process made."""
        self.add(self.test.registry.measured(profile), wanted)
        self._keep(trace, profile.name)

    def add_file(self, name: str, what: str, path: Path) -> None:
        """Add the path of a file, of kind `what`, to the profile of a name."""
        profile, limits = self.test.results[name]
        files = {**profile.files, what: str(path.resolve())}
        self.test.results[name] = replace(profile, files=files), limits

    def recording(self, name: str | None) -> tuple[Recording, StepInspection]:
        """Return a name's recording, or the last, with its inspection; CaptureError without one."""
        if name is None and self.test.results:
            name = list(self.test.results)[-1]
        if name in self.test.results and name not in self.recordings:
            raise CaptureError(
                f"profile {name!r} was made in a process of its own, which has ended: "
                "there is nothing left to export"
            )
        if name not in self.recordings:
            found = f"; {nearest(name, self.recordings)}" if name and self.recordings else ""
            raise CaptureError(
                f"this test has made no profile{f' named {name!r}' if name else ' yet'}{found}"
            )
        return self.recordings[name]


@contextmanager
def traces_reported(report: Report) -> Iterator[frozenset[str]]:
    """Report what frameworks trace in the context, and give the frameworks that do."""
    with ExitStack() as stack:
        watched = {
            name: stack.enter_context(reported_to(report))
            for name, reported_to in _REPORTED.items()
        }
        yield frozenset(name for name, known in watched.items() if known)


def skip_disabled() -> NoReturn:
    """Skip a test of a disabled plugin, after its step has run once."""
    pytest.skip("tfperf is disabled (--tfperf-disable): the step ran once and was not profiled")


def evidence_of(
    recording: Recording,
    inspection: StepInspection,
    read: ReadTraces | None = None,
    asked: Asked = ALL,
) -> Evidence:
    """Read the traces of a recording that are not in `read` already."""
    known = {Path(trace.path): trace for trace in (read or {}).values()}
    trace, first, beside = (
        known.get(path) or read_session(path) if path else None
        for path in (recording.trace, recording.cold, recording.input_trace)
    )
    return Evidence(recording, trace, first, inspection, beside, asked)


def asks_for_ablation(wanted: Wanted) -> bool:
    """Return whether a limit asks what each Grappler pass contributes."""
    return wanted.asks_for(_FROM_GRAPPLER)


def _asked(wanted: Wanted) -> Asked:
    """Return what a test asks of an analysis."""
    metrics = {limit.metric.name for limit in wanted.limits}
    if wanted.findings or wanted.ignore_findings:
        metrics.add("op_guide_findings")
    if metrics.intersection(_FROM_GRAPPLER):
        metrics.add("optimizers")
    return Asked(
        metrics=frozenset(metrics),
        target_step_time_s=wanted.target_step_time,
        max_python_calls_regression=wanted.max_python_calls_regression,
        tpu=wanted.tpu,
        findings=wanted.findings,
        ignore_findings=wanted.ignore_findings,
    )
