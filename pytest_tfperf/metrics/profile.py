"""Assemble a profile from the findings of all analyses; expensive ones run when they are asked."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pytest_tfperf.facts.parts import Breakdown
from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.metric_registry import METRICS
from pytest_tfperf.metrics import (
    batch_padding,
    calls,
    copies,
    counts,
    executables,
    flops,
    graph_ops,
    kernels,
    median_step,
    memory,
    memory_causes,
    op_profile,
    op_work,
    pipeline,
    pipeline_advice,
    pod,
    shares,
    step_code,
    time_causes,
    timing,
)
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.metrics.step_advice import advise, by_saving
from pytest_tfperf.metrics.validity import faults, remarks, remote_notes, valid, why_absent
from pytest_tfperf.results import Profile
from pytest_tfperf.text import plural
from pytest_tfperf.values import MEMORY_CAUSES, TIME_CAUSES, Step, Table, Value

NOT_COMPUTED = "not computed: no limit, report or baseline asks for it"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Expensive:
    """An analysis that takes long, left out of a profile until its findings are read."""

    analyse: Callable[[Evidence], Findings]
    metrics: tuple[str, ...] = ()
    """All that it produces."""
    tables: tuple[str, ...] = ()
    """All that it may produce."""

    def __call__(self, evidence: Evidence) -> Findings:
        """Run the analysis."""
        return self.analyse(evidence)

    def left_out(self) -> Findings:
        """Return its metrics as unknown."""
        return Findings(values={name: Value.unknown(name, NOT_COMPUTED) for name in self.metrics})


class OnDemand:
    """The expensive analyses of one profile that have not run."""

    def __init__(self, asked: Collection[str], evidence: Callable[[], Evidence]) -> None:
        """Hold the analyses until their findings are read."""
        self._asked = asked
        self._evidence: Callable[[], Evidence] | None = evidence
        self._waiting: list[Expensive] = []
        self._values: dict[str, Value] = {}
        self._tables: dict[str, Table] = {}

    def can_wait(self, analysis: Expensive) -> bool:
        """Return whether no finding of an analysis is asked for now."""
        return not any(name in self._asked for name in (*analysis.metrics, *analysis.tables))

    def attached(self, profile: Profile, waiting: Sequence[Expensive]) -> Profile:
        """Return the profile with findings of the waiting analyses that come when they are read."""
        self._waiting = list(waiting)
        self._values, self._tables = dict(profile.metrics), dict(profile.tables)
        return replace(
            profile,
            metrics=Demanded(self._values, self.compute, named=True),
            tables=Demanded(self._tables, self.compute),
        )

    def compute(self, name: str | None) -> None:
        """Run the analysis that may find this metric or table; with None run all."""
        for analysis in list(self._waiting):
            if name is None or name in (*analysis.metrics, *analysis.tables):
                assert self._evidence is not None  # it is there as long as an analysis waits
                evidence = self._evidence()
                found = analysis(evidence)
                self._waiting.remove(analysis)
                self._values.update(valid(found.values, evidence))
                self._tables.update(found.tables)

    def close(self) -> None:
        """Leave out the waiting analyses for good, and free what they would have read."""
        self._waiting.clear()
        self._evidence = None


class Demanded(Mapping[str, T]):
    """Findings by name; those of waiting analyses are computed when they are read."""

    def __init__(
        self,
        known: MutableMapping[str, T],
        compute: Callable[[str | None], None],
        named: bool = False,
    ) -> None:
        """Read what `compute` adds for a name, or all; `named` if all names are known already."""
        self._known, self._compute, self._named = known, compute, named

    def __getitem__(self, name: str) -> T:
        self._compute(name)
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        if not self._named and name not in self._known and isinstance(name, str):
            self._compute(name)
        return name in self._known

    def __iter__(self) -> Iterator[str]:
        if not self._named:
            self._compute(None)
        return iter(self.so_far())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(self.so_far())

    def so_far(self) -> dict[str, T]:
        """Return what is known, without computing anything."""
        return dict(self._known)

    def extended(self, more: Mapping[str, T]) -> Demanded[T]:
        """Return these findings and more, which no waiting analysis finds."""
        return Demanded(ChainMap(dict(more), self._known), self._compute, self._named)


def extended(found: Mapping[str, T], more: Mapping[str, T]) -> Mapping[str, T]:
    """Return findings of a profile and more, without computing anything."""
    return found.extended(more) if isinstance(found, Demanded) else {**found, **more}


def so_far(profile: Profile) -> Profile:
    """Return the profile with the findings that are known now, as plain values."""
    metrics, tables = profile.metrics, profile.tables
    return replace(
        profile,
        metrics=metrics.so_far() if isinstance(metrics, Demanded) else metrics,
        tables=tables.so_far() if isinstance(tables, Demanded) else tables,
    )


ANALYSES: tuple[Callable[[Evidence], Findings], ...] = (
    timing.analyse,
    shares.analyse,
    median_step.analyse,
    pipeline.analyse_capacity,
    pipeline.analyse,
    pipeline_advice.analyse,
    calls.analyse,
    calls.analyse_python_calls,
    memory.analyse_allocators,
    Expensive(memory.analyse_peak, metrics=("peak_memory",)),
    memory.analyse,
    copies.analyse,
    op_profile.analyse,
    kernels.analyse,
    pod.analyse_skew,
    pod.analyse,
    counts.analyse,
    executables.analyse_compile_time,
    executables.analyse,
    Expensive(
        flops.analyse,
        metrics=("flops", "half_precision", "flops_utilization"),
        tables=(op_work.TABLE,),
    ),
    Expensive(
        graph_ops.analyse,
        metrics=("graph_ops", "graph_reduction", "xla_coverage"),
        tables=("graph", "outside_xla"),
    ),
    Expensive(graph_ops.analyse_passes, tables=("optimizers",)),
    Expensive(
        step_code.analyse_padding,
        metrics=("padding_overhead", "mxu_padding_overhead"),
        tables=("padding",),
    ),
    Expensive(step_code.analyse_alignment, tables=("alignment",)),
    Expensive(step_code.analyse_op_guide, metrics=("op_guide_findings",), tables=("op_guide",)),
    batch_padding.analyse,
    Expensive(time_causes.analyse, tables=(TIME_CAUSES,)),
    Expensive(memory_causes.analyse, tables=(MEMORY_CAUSES,)),
)
"""Every analysis; each metric is a finding of exactly one."""


def profile_of(evidence: Evidence, on_demand: OnDemand | None = None) -> Profile:
    """Return the profile of all analyses of the evidence; raises TraceError without a step."""
    waiting = [
        analyse
        for analyse in ANALYSES
        if isinstance(analyse, Expensive) and on_demand is not None and on_demand.can_wait(analyse)
    ]
    findings = [
        analyse.left_out()
        if isinstance(analyse, Expensive) and analyse in waiting
        else analyse(evidence)
        for analyse in ANALYSES
    ]
    profile = assembled(evidence, findings)
    return profile if on_demand is None else on_demand.attached(profile, waiting)


def assembled(evidence: Evidence, findings: Sequence[Findings]) -> Profile:
    """Return the profile of findings in any order; values of an incomplete trace are unknown."""
    recording, trace = evidence.recording, evidence.trace
    incomplete = faults(trace) if trace else ()
    values = {name: value for found in findings for name, value in found.values.items()}
    values = {name: values[name] for name in sorted(values, key=_place)}
    metrics = valid(values, evidence)
    notes = [note for group in sorted(found.notes for found in findings) for note in group]
    of_values = dict.fromkeys(note for value in metrics.values() for note in value.notes)
    absent = why_absent(evidence)
    absent_notes = () if absent is None else (f"{absent}: counts of it are unknown",)
    untimed = evidence.steps.why_untimed if trace else ""
    profile = Profile(
        name=recording.name,
        metrics=metrics,
        workload=evidence.workload,
        notes=(
            *recording.notes,
            *recording.window_notes.values(),
            *absent_notes,
            *remote_notes(evidence),
            *_trace_notes(evidence, incomplete),
            *notes,
            *(note for note in of_values if note not in recording.window_notes.values()),
        ),
        ended=recording.ended,
        tables={key: table for found in findings for key, table in found.tables.items()},
        blocks_s=timing.block_seconds(recording),
        result=recording.result,
    )
    if trace is None:
        return profile
    profile = replace(
        profile,
        steps=() if untimed else _steps(evidence.steps, evidence.breakdown),
        n_dropped=evidence.steps.n_dropped,
        step_source=evidence.steps.source,
    )
    advice = sorted((one for found in findings for one in found.advice), key=lambda one: one.what)
    return replace(profile, advice=by_saving((*advise(profile, evidence.framework), *advice)))


def _place(metric: str) -> int:
    """Return the place of a metric in the registry."""
    names = list(METRICS)
    return names.index(metric) if metric in METRICS else len(names)


def _trace_notes(evidence: Evidence, incomplete: tuple[str, ...]) -> tuple[str, ...]:
    """Return what to know of the trace: dropped events, errors, warnings of the profiler."""
    if evidence.trace is None:
        return ()
    untimed = evidence.steps.why_untimed
    return (
        *_dropped(evidence.steps),
        *((f"the time of the steps is unknown: {untimed}",) if untimed else ()),
        *incomplete,
        *remarks(evidence.trace),
    )


def _dropped(steps: Steps) -> tuple[str, ...]:
    """Say which events are not steps, and why; those that tf_profile marks are ends of epochs."""
    if not steps.n_dropped or steps.source == "tfperf":
        return ()
    events = plural(steps.n_dropped, "other event")
    return (f"left out: {events} from {steps.source} ({steps.why_dropped})",)


def _steps(steps: Steps, breakdown: Breakdown) -> tuple[Step, ...]:
    parts = {part: (column * 1e-12).tolist() for part, column in breakdown.parts_ps.items()}
    periods = (breakdown.period_ps * 1e-12).tolist()
    return tuple(
        Step(
            name=name,
            period_s=periods[i],
            parts_s={part: column[i] for part, column in parts.items()},
        )
        for i, name in enumerate(steps.names)
    )
