"""Settings of the profiles of a test, and the depth of their analysis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_tfperf.capture.inspection import StepInspection
from pytest_tfperf.capture.plan import Plan
from pytest_tfperf.capture.sessions import ReadTraces, keep_trace, read_session, xla_shown
from pytest_tfperf.capture.windows import WindowHooks
from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.facts.host_activity import frameworks_of
from pytest_tfperf.frameworks.framework import TENSORFLOW
from pytest_tfperf.frameworks.in_use import other_frameworks, untraced_names
from pytest_tfperf.frameworks.jax import runs_in_several_processes
from pytest_tfperf.machine.locks import Exclusive, measuring_alone, measuring_anyway
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.shares import settling_steps
from pytest_tfperf.metrics.step_code import TPU_METRICS
from pytest_tfperf.plugin.registry import Registry
from pytest_tfperf.recording import Fetches, Recording
from pytest_tfperf.turn import TurnClients
from pytest_tfperf.turns.workers import RunWorkers
from pytest_tfperf.variants.comparison import CompareInProcesses

__tracebackhide__ = True

_FROM_GRAPPLER = ("graph_ops", "graph_reduction")


def evidence_of(
    recording: Recording, inspection: StepInspection, read: ReadTraces | None = None
) -> Evidence:
    """
    Read the traces of a recording.

    Args:
        recording: The recording.
        inspection: Inspection of its steps' code.
        read: Traces that have been read, and need not be read again.
    """
    known = {Path(trace.path): trace for trace in (read or {}).values()}
    trace, first, beside = (
        known.get(path) or read_session(path) if path else None
        for path in (recording.trace, recording.cold, recording.input_trace)
    )
    return Evidence(recording, trace, first, inspection, beside)


def asked_findings(wanted: Wanted) -> set[str]:
    """Return the metrics and tables that a test asks for."""
    asked = {limit.metric.name for limit in wanted.limits}
    if wanted.findings or wanted.ignore_findings:
        asked.add("op_guide_findings")
    if asked.intersection(_FROM_GRAPPLER):
        asked.add("optimizers")
    return asked


def as_asked(recording: Recording, wanted: Wanted, settings: Settings) -> Recording:
    """
    Return a recording with what a test asks of its analysis, and what holds for its process.

    Args:
        recording: The recording.
        wanted: Arguments of the marker.
        settings: Settings of the test, with notes on every profile of the run.
    """
    asked = TPU_METRICS if wanted.tpu else asked_findings(wanted)
    return replace(
        recording,
        target_step_time_s=wanted.target_step_time,
        max_python_calls_regression=wanted.max_python_calls_regression,
        findings=wanted.findings,
        ignore_findings=wanted.ignore_findings,
        notes=settings.notes + recording.notes,
        tpu=wanted.tpu,
        frameworks=other_frameworks(),
        xla_shown=xla_shown(settings.scratch).get(recording.framework),
        left_out=tuple(name for name in TPU_METRICS if name not in asked),
    )


def asks_for_ablation(wanted: Wanted) -> bool:
    """Return whether a limit asks what each Grappler pass contributes."""
    return wanted.asks_for(_FROM_GRAPPLER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The way in which the profiles of one test are made."""

    wanted: Wanted
    """Arguments of the marker."""
    plan: Plan
    """Windows of tests that set none."""
    keep: Path | None = None
    """The folder in which traces are kept, if they are."""
    scratch: Path | None = None
    """The folder of all other files."""
    disabled: bool = False
    """True if each step runs once, and nothing is measured."""
    announce: Callable[[str], None] = lambda _: None
    """Shows what takes long."""
    notes: tuple[str, ...] = ()
    """Notes on every profile."""
    turn_clients: TurnClients | None = None
    """Gives a profile its turn client, in a paired run."""
    compare_in_processes: CompareInProcesses | None = None
    """Runs variants in processes of their own, where that is possible."""
    run_workers: RunWorkers | None = None
    """Runs workers in processes of their own, where that is possible."""
    in_step: bool = False
    """True if other workers run as many steps, since they wait for each other in collectives."""
    keeps: Callable[[str], bool] = lambda _: True
    """Returns whether the trace of a profile of this name is kept."""
    registry: Registry = field(default_factory=Registry)
    """The project's own metrics."""
    exclusive: Exclusive = measuring_alone
    """Keeps others from measuring meanwhile."""
    whole: bool = False
    """True if every analysis runs, since a report, a baseline or another process takes it all."""

    def overridden(self, limits: Mapping[str, Any] | None, options: Mapping[str, Any]) -> Wanted:
        """
        Return the marker's arguments, overridden by those of a profile.

        Args:
            limits: Limits of the profile, or None.
            options: Options of the profile; None for one that is not given.

        Raises:
            CaptureError: If nothing would decide the limits.
        """
        if limits and self.in_step:
            raise CaptureError(
                "limits= of a profile in a worker decides nothing: give it to tf_profile.workers"
            )
        given = {key: value for key, value in options.items() if value is not None}
        return Wanted.read({**self.wanted.given, **(limits or {}), **given}, self.registry.rows)

    def kept_trace(self, trace: Path, name: str) -> Path | None:
        """Keep the trace of a profile of this name, if traces are kept; return its path."""
        if self.keep is None or not self.keeps(name):
            return None
        return keep_trace(trace, self.keep, name)


def steps_together(settings: Settings) -> bool:
    """Return whether other processes run as many steps, since they wait for each other."""
    return settings.in_step or runs_in_several_processes()


def plan_of(settings: Settings, wanted: Wanted) -> Plan:
    """Return the windows of a profile: those of the run, overridden by its own arguments."""
    names = ("warmup", "steps", "trace_steps", "latency")
    chosen = {name: getattr(wanted, name) for name in names}
    given = {name: value for name, value in chosen.items() if value is not None}
    plan = replace(settings.plan, **given)
    return plan.in_step() if steps_together(settings) else plan


def window_hooks(settings: Settings, name: str, wanted: Wanted) -> WindowHooks:
    """
    Return what the windows of a profile call.

    Args:
        settings: Settings of the test.
        name: Name of the profile.
        wanted: Arguments of the marker.
    """
    turn_clients = settings.turn_clients

    def settling(traces: ReadTraces, before: int, fetches: Fetches | None) -> int:
        # The buffers of each worker drain in a number of steps of its own.
        if steps_together(settings):
            return 0
        first = frameworks_of(traces, untraced_names())[0]
        if first not in traces:
            return 0
        beside = None if first == TENSORFLOW else traces.get(TENSORFLOW)
        return settling_steps(traces[first], before, fetches, beside)

    return WindowHooks(
        settling_steps=settling,
        announce=settings.announce,
        # Processes that wait for each other cannot wait for a lock one after the other.
        exclusive=measuring_anyway if runs_in_several_processes() else settings.exclusive,
        turn_client=turn_clients(name, wanted.max_regression) if turn_clients else None,
        most_retraces=wanted.most("retraces"),
        most_compiles=wanted.most("xla_compiles"),
        most_growth=wanted.most("memory_growth"),
    )
