"""Make, name and keep the profiles of one test, for every form of `tf_profile`."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_tfperf.capture.inspection import StepInspection
from pytest_tfperf.capture.loop import mean_batch
from pytest_tfperf.capture.sessions import (
    ReadTraces,
    Session,
    read_sessions,
    stop_quietly,
    user_session_runs,
    xla_shown,
)
from pytest_tfperf.capture.trace_watch import traces_watched
from pytest_tfperf.capture.windows import Windows
from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.checks.limits import Limit
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.facts.host_activity import frameworks_of
from pytest_tfperf.frameworks.in_use import check_any_in_use, in_use, named, untraced_names
from pytest_tfperf.frameworks.jax_objects import jax_objects
from pytest_tfperf.machine.description import describe
from pytest_tfperf.metric_registry import nearest
from pytest_tfperf.metrics.profile import OnDemand, extended, profile_of
from pytest_tfperf.metrics.validity import refuse_other_frameworks
from pytest_tfperf.plugin.profile_settings import (
    Settings,
    as_asked,
    asked_findings,
    asks_for_ablation,
    evidence_of,
    plan_of,
    window_hooks,
)
from pytest_tfperf.recording import Recording
from pytest_tfperf.results import Profile
from pytest_tfperf.stats.slope import FEWEST
from pytest_tfperf.temporary import TemporaryFolder
from pytest_tfperf.values import Json, Table

__tracebackhide__ = True


class Profiles:
    """The profiles of one test, made one after the other, with the limits of each."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.results: dict[str, tuple[Profile, tuple[Limit, ...]]] = {}
        self.recordings: dict[str, tuple[Recording, StepInspection]] = {}
        self._on_demand: list[OnDemand] = []
        self.names: set[str] = set()
        self.asked: list[tuple[Limit, ...]] = []
        self.ended = False
        self._temporary = TemporaryFolder(settings.scratch)
        self.folder = self._temporary.path
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
        for on_demand in self._on_demand:
            on_demand.close()
        self._on_demand.clear()
        if not self._user_session and user_session_runs():
            stop_quietly()  # the test left a session of its own running
        self._temporary.close()

    def take_name(self, name: str | None) -> str:
        """
        Take a name for the next profile; the first may have none, and then is at "".

        Raises:
            CaptureError: If it is taken or missing, or a profile is being made already.
        """
        self.check_name(name)
        self.names.add(name or "")
        return name or ""

    def check_name(self, name: str | None) -> None:
        """Raise the errors of `take_name` if the next profile cannot have this name."""
        if self._open or self._tracing:
            raise CaptureError(
                "a profile of this test is being made already;"
                " profiles cannot be nested, since there is one profiler"
            )
        if name is None and self.names:
            raise CaptureError("this test has profiled a step before; give the second one a name=")
        if (name or "") in self.names:
            raise CaptureError(
                f"this test has a profile named {name!r} already; names are {sorted(self.names)}"
            )

    def wanted(self, limits: Mapping[str, Any] | None, **options: Any) -> Wanted:
        """Return the marker's arguments, overridden by a profile's own limits and options."""
        wanted = self.settings.overridden(limits, options)
        if self.ended and wanted.limits:
            raise CaptureError("the limits of this test are decided: profile before it ends")
        self.asked += [wanted.limits] if limits else []
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
        Start the windows of a loop; the context closes them.

        Args:
            name: Name of the profile.
            wanted: Arguments of the marker.
            kind: Kind of the loop: step, train, test or predict.
            steps_per_call: Steps that loop inside a call.
            available: Number of calls, if it is known.
            goes_on: Whether there can be more than these.

        Raises:
            CaptureError: If no framework can run the steps, or another profiler runs.
        """
        plan = replace(
            plan_of(self.settings, wanted),
            steps_per_call=steps_per_call,
            counts_slow_steps=self.settings.whole or wanted.asks_for(("python_calls",)),
            least_blocks=FEWEST if wanted.asks_for(("memory_growth",)) else 1,
        )
        check_any_in_use()
        xla_shown(self.settings.scratch)  # which also starts the runtime, before a first step
        return self._opened(
            Windows(
                plan if available is None else plan.cut_to(available, goes_on),
                self.folder,
                kind,
                window_hooks(self.settings, name, wanted),
            )
        )

    @contextmanager
    def _opened(self, windows: Windows) -> Iterator[Windows]:
        self._open.append(windows)
        try:
            with traces_watched(windows):
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
        with self.settings.exclusive(self.settings.announce):
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
        Return the profile of windows that have ended.

        Args:
            windows: The windows.
            name: Name of the profile.
            wanted: Arguments of the marker.
            result: Result of the last step, or of Keras.
            workload: Inputs and batch size of the steps.
            examples: Examples of a step; by default the batch size.
        """
        observations = windows.observations
        traces = windows.read or read_sessions(observations.traces or observations.cold)
        ran = frameworks_of(traces, untraced_names()) or tuple(one.name for one in in_use())[:1]
        held = jax_objects(ran[:1])
        inspection = observations.inspection(
            workload, windows.plan.max_seconds, asks_for_ablation(wanted), held.programs
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
        """
        Analyse a recording, and keep its profile.

        Args:
            recording: The recording.
            inspection: Inspection of the steps' code.
            wanted: Arguments of the marker.
            read: The traces of its session, read.

        Raises:
            TraceError: If there is no step in them.
        """
        asked = as_asked(recording, wanted, self.settings)
        evidence = evidence_of(asked, inspection, read)
        refuse_other_frameworks(evidence)
        on_demand = None
        if not self.settings.whole:
            on_demand = OnDemand(
                asked_findings(wanted), functools.partial(evidence_of, asked, inspection)
            )
            self._on_demand.append(on_demand)
        profile = self.settings.registry.measured(profile_of(evidence, on_demand))
        self.results[recording.name] = profile, wanted.limits
        self.recordings[recording.name] = recording, inspection
        if recording.trace and (kept := self.settings.kept_trace(recording.trace, recording.name)):
            self.add_file(recording.name, "trace", kept)
        return self.results[recording.name][0]

    def add(self, profile: Profile, wanted: Wanted) -> None:
        """Keep a profile that was made in another process."""
        self.results[self.take_name(profile.name)] = profile, wanted.limits

    def add_traced(self, profile: Profile, wanted: Wanted, trace: Path) -> None:
        """
        Keep a profile of a trace that another process made.

        Args:
            profile: The profile.
            wanted: Arguments of the marker.
            trace: The trace.
        """
        self.add(self.settings.registry.measured(profile), wanted)
        kept = self.settings.kept_trace(trace, profile.name)
        if kept is not None:
            self.add_file(profile.name, "trace", kept)

    def add_table(self, name: str, key: str, table: Table) -> None:
        """
        Add a table to a profile.

        Args:
            name: Name of the profile.
            key: Key of the table.
            table: The table.
        """
        profile, limits = self.results[name]
        self.results[name] = replace(profile, tables=extended(profile.tables, {key: table})), limits

    def add_file(self, name: str, what: str, path: Path) -> None:
        """
        Add the path of a file to a profile.

        Args:
            name: Name of the profile.
            what: Kind of the file.
            path: Path of the file.
        """
        profile, limits = self.results[name]
        files = {**profile.files, what: str(path.resolve())}
        self.results[name] = replace(profile, files=files), limits

    def recording(self, name: str | None) -> tuple[Recording, StepInspection]:
        """
        Return the recording of a name, or the last one, with the inspection of its step.

        Raises:
            CaptureError: If there is nothing.
        """
        if name is None and self.results:
            name = list(self.results)[-1]
        if name in self.results and name not in self.recordings:
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

    def environment(self) -> Json:
        """Return the environment of the steps, by the frameworks that ran them, if any can."""
        try:
            return describe(named({one.framework for one, _ in self.recordings.values()}))
        except CaptureError:  # the test has failed with it
            return describe(())
