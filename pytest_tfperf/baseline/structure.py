"""Structure of a profile: what is stored of it, and what changed since it was stored."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from pytest_tfperf.baseline.history import rounded
from pytest_tfperf.baseline.step_time import next_step
from pytest_tfperf.baseline.store import IN_XLA, OPS, OUTSIDE_XLA
from pytest_tfperf.checks.limits import explanation
from pytest_tfperf.checks.roots import ADDED, MOVED_OUT
from pytest_tfperf.differences.difference import added_counts
from pytest_tfperf.differences.profiles import (
    dtype_differences,
    flop_differences,
    op_counts,
    setting_differences,
    with_reasons,
)
from pytest_tfperf.differences.structure import (
    call_differences,
    called_functions,
    op_type_counts,
    op_type_differences,
    pipeline_differences,
    pipeline_labels,
)
from pytest_tfperf.gates import MOVED, NEVER, Gate, explained_by, gate_of, gate_of_value
from pytest_tfperf.metric_evidence import TOTALS
from pytest_tfperf.metric_registry import MACHINE, PLATFORM, PROGRAM, Metric
from pytest_tfperf.metrics import op_work
from pytest_tfperf.quantities import COUNT, RATIO, format_change, format_quantity, told_apart
from pytest_tfperf.results import Check, Kind, Profile, Verdict
from pytest_tfperf.text import Labelled, and_more
from pytest_tfperf.values import (
    COUNTED_BY,
    EXECUTABLES,
    OF_PLATFORM,
    TRACED_BEFORE,
    Json,
    Source,
    Table,
    Value,
)

LISTS_OF_PLATFORMS = {
    OPS: "FLOPs and types by op",
    "op_types": "ops by type",
    IN_XLA: "ops in XLA by type",
    OUTSIDE_XLA: "ops outside XLA by type",
    "python_functions": "calls by Python function",
    "python_calls": "calls by Python function",
}
"""Lists that an entry has for each platform, with their titles."""
LISTS = {"pipeline": "the input pipeline's stages", **LISTS_OF_PLATFORMS}
"""All lists of an entry, with their titles."""
COUNTED_STEPS = "counted_steps"
"""Key of an entry: the number of steps that its totals are counted over."""
_NAMED, _LINES = 5, 2
_TOLERANCE = {"peak_memory": 0.10}  # measured on a CPU it differs by 7 % from step to step
_OF_SHAPES = frozenset({"flops"})
_SHAPES_DIFFER = (
    "it is that of the most common shapes, and batches differ in theirs from run to run"
)
_OF_EXECUTABLES = frozenset({"flops"})
_PROGRAMS_DIFFER = "one of both may count the executables that XLA made of the step's programs"
_OTHER_PLATFORM = "it depends on the packages, which differ; a limit decides it"
_FROM_BEFORE = "pytest --tfperf-update on the version before, or --tfperf-against it"
_BY_CHANCE = "the order of ops or copies of unaligned arrays can make the difference"


def scope_of(metric: Metric, value: Value) -> str:
    """
    Return where a value holds: that of its metric, unless its programs were made for a platform.

    XLA optimises executables for a platform, and JAX makes a few programs for one (unoptimised.py).
    """
    is_narrower = metric.scope == PROGRAM and value.detail.get(OF_PLATFORM, False)
    return PLATFORM if is_narrower else metric.scope


def stored(profile: Profile, scope: str) -> Json:
    """Return the known metrics of a scope, as they are stored."""
    rows = profile.registry
    known = {
        name: value.number
        for name, value in profile.metrics.items()
        if value.number is not None and (scope == MACHINE or not value.is_measured_bound())
    }
    return {
        name: rounded(number)
        for name, number in known.items()
        if name in rows and scope_of(rows[name], profile.metrics[name]) == scope
    }


def structure_of(profile: Profile, environment: Mapping[str, Any]) -> Json:
    """Return a profile as the entry of a structure file, but for the commit."""
    pipeline = pipeline_labels(profile.tables.get("pipeline"))
    platform = environment["platform"]
    lists = {
        OPS: _ops(profile),
        "op_types": op_type_counts(profile.tables.get("graph")),
        "python_functions": _functions(profile),
        "python_calls": _calls_by_package(profile),
        **_xla_ops(profile.metrics.get("xla_coverage")),
    }
    return {
        "workload": dict(profile.workload),
        "program": stored(profile, PROGRAM),
        "platform": {platform: stored(profile, PLATFORM)},
        "setting": dict(environment["setting"]),
        **_counted_steps(profile),
        **({} if pipeline is None else {"pipeline": pipeline}),
        **{name: {platform: found} for name, found in lists.items() if found is not None},
    }


def _counted_steps(profile: Profile) -> Json:
    """Return the part of an entry that tells over how many steps its totals are counted."""
    for name in TOTALS:
        value = profile.metrics.get(name)
        if value is not None and value.number is not None and "n_steps" in value.detail:
            return {COUNTED_STEPS: int(value.detail["n_steps"])}
    return {}


def _ops(profile: Profile) -> dict[str, float | int] | None:
    """Return the ops of a step by type, place and work, unless they differ from step to step."""
    value = profile.metrics.get("flops")
    if value is None or "low" in value.detail:
        return None
    counts = op_counts(profile.tables.get(op_work.TABLE))
    return counts and {name: rounded(n_ops) for name, n_ops in counts.items()}


def _functions(profile: Profile) -> dict[str, float | int] | None:
    """Return the calls of a step by Python function, unless they differ from step to step."""
    value = profile.metrics.get("python_calls")
    called = called_functions(profile.tables.get("python_calls"))
    if value is None or value.number is None or called is None:
        return None
    return {name: rounded(calls) for name, calls in called.items()}


def _calls_by_package(profile: Profile) -> dict[str, float | int] | None:
    """Return the calls of a step by package, and by function of the project."""
    value = profile.metrics.get("python_calls")
    if value is None or value.number is None or COUNTED_BY not in value.detail:
        return None
    return {name: rounded(calls) for name, calls in value.detail[COUNTED_BY].items()}


def _xla_ops(coverage: Value | None) -> dict[str, dict[str, int]]:
    """Return the lists to store; none if XLA compiles nothing, or if that is not known."""
    inside, outside = _told(coverage)
    return {IN_XLA: dict(inside), OUTSIDE_XLA: dict(outside or {})} if inside else {}


def _moved_out(entry: Json, platform: str, coverage: Value | None) -> dict[str, int] | None:
    """
    Return how many ops of each type left XLA since the entry; None if it or the value lacks them.
    """
    inside, outside = _told(coverage)
    if outside is not None and not outside:
        return {}
    before: Mapping[str, int] | None = entry.get(IN_XLA, {}).get(platform)
    if outside is None or before is None:
        return None
    others = entry.get(OUTSIDE_XLA, {}).get(platform, {})
    moved = {
        op_type: min(
            count - (inside or {}).get(op_type, 0),
            outside.get(op_type, 0) - others.get(op_type, 0),
        )
        for op_type, count in before.items()
    }
    return {op_type: count for op_type, count in moved.items() if count > 0}


def _no_longer_compiled(moved: Mapping[str, int], tables: Mapping[str, Table]) -> str:
    """Return `XLA no longer compiles MatMul ×2, Relu (train.py:12)`, the most frequent first."""
    most = sorted(moved.items(), key=lambda one: (-one[1], one[0]))
    named = and_more([name if n == 1 else f"{name} ×{n}" for name, n in most], _NAMED)
    outside = tables.get("outside_xla")
    lines = [
        row["line"]
        for row in (outside.records() if outside else ())
        if row["line"] and any(op_type in row["type"] for op_type in moved)  # _FusedMatMul too
    ]
    at = f" ({and_more(list(dict.fromkeys(lines)), _LINES)})" if lines else ""
    return f"XLA no longer compiles {named}{at}"


def lost_compilation(
    entry: Json, platform: str, profile: Profile
) -> tuple[tuple[Labelled, ...], tuple[Labelled, ...]]:
    """
    Return what XLA no longer compiles and the remedy, as lines of a slower step; none if nothing.
    """
    coverage = profile.metrics.get("xla_coverage")
    moved = _moved_out(entry, platform, coverage)
    if not moved or coverage is None:
        return (), ()
    _, advice = explanation(coverage)
    return (("", _no_longer_compiled(moved, profile.tables)),), advice


def _told(
    coverage: Value | None,
) -> tuple[Mapping[str, int] | None, Mapping[str, int] | None]:
    """Return the ops by type inside and outside XLA, each None if it is not known."""
    detail = coverage.detail if coverage is not None else {}
    return detail.get("inside"), detail.get("outside")


@dataclass(frozen=True, slots=True)
class Reference:
    """The version that a profile is compared with, as messages name it."""

    name: str
    record: str = ""
    """Way to record a value that is missing, where there is one."""
    accept: str = ""
    """Way to accept a changed value, where there is one."""
    meant: str = ""
    """Advice on an intended change."""
    is_same_platform: bool = True
    """False if metrics of the platform are shown and not decided."""


def against_profile(
    profile: Profile, before: Profile, name: str, kind: Kind, is_same_platform: bool = True
) -> list[Check]:
    """Check the structure of a profile against another one of the same machine and workload."""
    same: Json = {"platform": "", "setting": {}}
    until = f", until {name} has it too" if is_same_platform else ""
    meant = f"run with --tfperf-only timing{until}"
    reference = Reference(name, meant=meant, is_same_platform=is_same_platform)
    checks = structure_checks(profile, structure_of(before, same), same, reference)
    return [replace(with_reasons(found, before, profile), kind=kind) for found in checks]


def structure_checks(
    profile: Profile, entry: Json, environment: Mapping[str, Any], reference: Reference
) -> Iterator[Check]:
    """Check metrics of the program and, on the same platform, of the platform."""
    changed = changed_setting(entry.get("setting", {}), environment["setting"])
    here = environment["platform"]
    known = {**entry["program"], **entry["platform"].get(here, {})}
    comparison = _Comparison(profile, known, changed, reference, entry, here)
    for found in comparison.checks():
        yield _with_lists(found, profile, entry, here)
    if here not in entry["platform"] and entry["platform"]:
        platforms = " | ".join(sorted(entry["platform"]))
        message = f"platform metrics of {reference.name} are for {platforms}, this is {here}"
        advice = next_step(reference.record and f"{reference.record} on this platform")
        yield check(
            profile, "platform", Verdict.INCOMPARABLE, "the same platform", message, advice=advice
        )


def _with_lists(found: Check, profile: Profile, entry: Json, platform: str) -> Check:
    """Name the stages, op types or Python functions behind a change, instead of the own `where`."""
    is_worse = found.verdict is Verdict.REGRESSION
    functions = entry.get("python_functions", {}).get(platform)
    ops = entry.get(OPS, {}).get(platform)
    shown_only = found.detail.get("gates") is False
    added: Mapping[str, float] = {}
    if found.metric == "python_calls" and (is_worse or shown_only):
        reasons = call_differences(functions, profile.tables.get("python_calls"))
        calls = entry.get("python_calls", {}).get(platform)
        added = {} if calls is None else added_counts(calls, _calls_by_package(profile) or {})
    elif found.metric in ("half_precision", "peak_memory") and ops and (is_worse or shown_only):
        reasons = iter(dtype_differences(ops, profile.tables.get(op_work.TABLE)))
    elif not is_worse:
        return found
    elif found.metric == "input_python_stages" and "pipeline" in entry:
        reasons = pipeline_differences(entry["pipeline"], profile.tables.get("pipeline"))
    elif found.metric == "flops" and ops:
        reasons = iter(flop_differences(ops, profile.tables.get(op_work.TABLE)))
    elif found.metric == "graph_ops" and platform in entry.get("op_types", {}):
        table = profile.tables.get("graph")
        of_types = op_type_differences(entry["op_types"][platform], table)
        work = profile.tables.get(op_work.TABLE) if ops else None
        reasons = chain(dtype_differences(ops, work), of_types)
        added = added_counts(entry["op_types"][platform], op_type_counts(table) or {})
    else:
        return found
    lines = [("", one.line) for one in reasons]
    kept = [detail for detail in found.details if not lines or detail[0] != "where"]
    detail = {**found.detail, **({ADDED: dict(added)} if added else {})}
    return replace(found, details=(*lines, *kept), detail=detail)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A profile and the stored values that it is compared with."""

    profile: Profile
    stored: Json
    changed: str
    """List of what else differs from the stored run."""
    reference: Reference
    entry: Json
    """The entry, which tells the steps that its totals are counted over, and what XLA compiled."""
    platform: str

    def checks(self) -> Iterator[Check]:
        """
        Check the metrics of the program, then those of the platform.

        A change of the program can make a value one of a platform, or no longer. Here both hold.
        """
        program, values = self.entry["program"], self.entry["platform"].get(self.platform)
        yield from self._of_scope(PROGRAM, {**(values or {}), **program}, values is not None)
        yield from self._of_scope(PLATFORM, {**program, **(values or {})}, values is not None)
        for name in sorted(self.stored.keys() - self.profile.metrics.keys()):
            yield self._gone(name, float(self.stored[name]))

    def _of_scope(self, scope: str, stored: Json, has_platform: bool) -> Iterator[Check]:
        elsewhere = {name for one in self.entry["platform"].values() for name in one}
        for name, metric in self.profile.registry.items():
            value = self.profile.metrics.get(name)
            if value is None or scope_of(metric, value) != scope or not value.is_asked:
                continue
            if value.is_measured_bound():
                continue
            if name in stored:
                before = float(stored[name])
                found = self._against(metric, value, before)
                detail = {"before": before, "after": value.number, **found.detail}
                yield replace(found, detail=detail)
            elif not has_platform and (scope == PLATFORM or name in elsewhere):
                continue  # one check says of all that the platform is another one
            elif "max_rise" in value.detail:
                yield self._nothing_to_limit(metric, value, value.detail["max_rise"])
            elif value.number is not None and "in_any_order" not in value.detail:  # else by chance
                shown = format_quantity(value.number, metric.unit)
                yield check(
                    self.profile,
                    name,
                    Verdict.NEW,
                    f"a value in {self.reference.name}",
                    f"{name} is {shown}, and {self.reference.name} has none",
                    advice=next_step(self.reference.record),
                )

    def _nothing_to_limit(self, metric: Metric, value: Value, max_rise: float) -> Check:
        """Return the check of a value whose rise the test limits, and that nothing is stored of."""
        name, shown = metric.name, format_quantity(max_rise, RATIO)
        verdict, found = Verdict.UNKNOWN, f"unknown: {value.why}"
        if value.number is not None:
            verdict, found = Verdict.INCONCLUSIVE, format_quantity(value.number, metric.unit)
        return check(
            self.profile,
            name,
            verdict,
            f"at most {shown} more",
            f"max_{name}_regression of {shown} has nothing to compare with: "
            f"{self.reference.name} has no {name}, and here it is {found}",
            advice=next_step(self.reference.record),
        )

    def _gone(self, name: str, before: float) -> Check:
        """Return the check of a stored metric that this run lacks, as of a plugin that is gone."""
        metric, why = self.profile.registry.get(name), "this run has no such metric"
        if metric is not None:
            found = self._against(metric, Value(number=None, unit=metric.unit, why=why), before)
            return replace(found, detail={"before": before, "after": None, **found.detail})
        meant, reference = self.reference.meant, self.reference.name
        return check(
            self.profile,
            name,
            Verdict.UNKNOWN,
            f"a value, as in {reference}",
            f"{name} is unknown, {rounded(before)} in {reference}: {why}",
            advice=(("if intended", meant),) if meant else (),
        )

    def _against(self, metric: Metric, value: Value, before: float) -> Check:
        name, shown = metric.name, format_quantity(before, metric.unit)
        reference = self.reference.name
        wanted = f"{shown} ({reference.removeprefix('the ')})"
        if value.number is None:
            sentence = f"{name} is unknown, {shown} in {reference}: {value.why}"
            gate = self._gate_of(metric, value)
            fails = gate.change != NEVER and gate.if_unknown
            verdict = Verdict.UNKNOWN if fails else Verdict.INCONCLUSIVE
            return check(self.profile, name, verdict, wanted, sentence, detail={"why": value.why})
        now = float(rounded(value.number))
        found = f"{name} is {format_quantity(now, metric.unit)}"
        steps, steps_before = value.detail.get("n_steps"), self.entry.get(COUNTED_STEPS)
        if name in TOTALS and steps is not None and steps_before is not None:
            why = _why_undecided(before, steps_before, now, steps, reference)
            if why:
                sentence = f"{name} is {why}: another number of steps may be why"
                return check(self.profile, name, Verdict.INCONCLUSIVE, wanted, sentence)
        if now == before:
            sentence = f"{found}, as in {reference}"
            return check(self.profile, name, Verdict.PASS, wanted, sentence)
        if within := _within(metric, value, before):
            sentence = f"{found}, within {within} of the {shown} in {reference}"
            return check(self.profile, name, Verdict.PASS, wanted, sentence)
        if before >= float(value.detail.get("in_any_order", math.inf)):
            sentence = f"{found}, {shown} in {reference}: {_BY_CHANCE}"
            return check(self.profile, name, Verdict.PASS, wanted, sentence)
        return self._changed(metric, value, before, now, wanted)

    def _changed(
        self, metric: Metric, value: Value, before: float, now: float, wanted: str
    ) -> Check:
        """Decide a change by the gate of its metric."""
        name, profile, reference = metric.name, self.profile, self.reference
        moved = "rose" if now > before else "fell"
        exactly = told_apart(before, now, metric.unit)
        sentence = f"{name} {moved} from {format_change(before, now, metric.unit)}{exactly}"
        details, advice = explanation(value)
        if self.changed:
            details = (*details, ("changed besides", self.changed))
        if self._is_of_other_programs(metric, value):
            sentence = f"{sentence}, or not: {_PROGRAMS_DIFFER}"
            advice = next_step(reference.accept)
            return check(profile, name, Verdict.INCOMPARABLE, wanted, sentence, advice=advice)
        gate = self._gate_of(metric, value)
        if gate.change == MOVED and gate.closes(metric, before, now):
            shown = check(profile, name, Verdict.PASS, wanted, sentence, details=details)
            return self._out_of_xla(shown, gate)
        if why := self._why_shown_only(metric, gate, before, now):
            sentence, shown_only = f"{sentence}, which does not gate: {why}", {"gates": False}
            return check(
                profile, name, Verdict.PASS, wanted, sentence, details=details, detail=shown_only
            )
        if not gate.closes(metric, before, now):
            advice = next_step(reference.accept and f"{reference.accept}, to hold it from now on")
            return check(profile, name, Verdict.IMPROVED, wanted, sentence, advice=advice)
        has_several_shapes = any(",?" in shape for shape in profile.workload.get("inputs", ()))
        if name in _OF_SHAPES and has_several_shapes:
            sentence = f"{sentence}, or not: {_SHAPES_DIFFER}"
            advice = next_step("batches of one shape")
            return check(profile, name, Verdict.INCONCLUSIVE, wanted, sentence, advice=advice)
        if reference.meant:
            advice = (*advice, ("if intended", reference.meant))
        return check(
            profile, name, Verdict.REGRESSION, wanted, sentence, details=details, advice=advice
        )

    def _out_of_xla(self, fallen: Check, gate: Gate) -> Check:
        """Decide a fall of xla_clusters, or of xla_coverage where they did not fall."""
        coverage, values = self.profile.metrics.get("xla_coverage"), self._values()
        clusters = self.stored.get("xla_clusters"), values.get("xla_clusters")
        covered = self.stored.get("xla_coverage"), values.get("xla_coverage")
        is_of_clusters, meant = fallen.metric == "xla_clusters", self.reference.meant
        is_told_there = not is_of_clusters and _fell(*clusters)
        moved = {} if is_told_there else _moved_out(self.entry, self.platform, coverage)
        if moved:
            lost = _no_longer_compiled(moved, self.profile.tables)
            details, advice = explanation(coverage) if coverage is not None else ((), ())
            return replace(
                fallen,
                verdict=Verdict.REGRESSION,
                sentence=f"{lost}: {fallen.sentence}",
                detail={MOVED_OUT: moved},
                details=(*details, *(one for one in fallen.details if one[0] != "where")),
                advice=(*advice, *((("if intended", meant),) if meant else ())),
            )
        if moved is None and is_of_clusters and not _held(*covered):
            why = coverage.why if coverage is not None else None
            why = why or f"{self.reference.name} does not tell which ops XLA compiled"
            sentence = (
                f"{fallen.sentence}, and whether its ops run outside XLA now is unknown: {why}"
            )
            advice = next_step(self.reference.record and _FROM_BEFORE)
            return replace(fallen, verdict=Verdict.UNKNOWN, sentence=sentence, advice=advice)
        why = "xla_clusters fell too, and decides it" if is_told_there else gate.why
        sentence = f"{fallen.sentence}, which does not gate: {why}"
        return replace(fallen, sentence=sentence, detail={"gates": False})

    def _why_shown_only(self, metric: Metric, gate: Gate, before: float, now: float) -> str:
        """Return why a change is shown and not decided; empty if it is decided."""
        falls_short = metric.better is None and not gate.closes(metric, before, now)
        if gate.change in (NEVER, MOVED) or falls_short:
            return gate.why
        if gate.tolerates(before, now):
            return f"it is within {gate.bounds('or')} of the value before"
        first = self.profile.metrics.get("first_step_time")
        if metric.name in TOTALS and now < before and first and TRACED_BEFORE in first.detail:
            return f"{first.why}, and what it traced or compiled then is not counted"
        if explained_by(gate, self.stored, self._values()):
            return f"{gate.why}, and {gate.unless} changed too"
        return ""

    def _gate_of(self, metric: Metric, value: Value) -> Gate:
        """Return the gate of a value; of another platform it is one only if the test sets it."""
        of_platform = self.entry["platform"].get(self.platform, {})
        is_narrower = scope_of(metric, value) == PLATFORM or metric.name in of_platform
        is_other = is_narrower and not self.reference.is_same_platform
        gate = gate_of_value(metric, value.detail)
        return Gate(NEVER, _OTHER_PLATFORM) if is_other and gate == gate_of(metric) else gate

    def _is_of_other_programs(self, metric: Metric, value: Value) -> bool:
        """Return whether one value may count executables, and the other the step's programs."""
        if metric.name not in _OF_EXECUTABLES:
            return False
        was_of_program = metric.name in self.entry["program"]
        if scope_of(metric, value) == PROGRAM:
            return not was_of_program
        is_stored_here = metric.name in self.entry["platform"].get(self.platform, {})
        return not is_stored_here and value.detail[OF_PLATFORM] == EXECUTABLES

    def _values(self) -> dict[str, float | None]:
        return {
            name: None if value.number is None else float(rounded(value.number))
            for name, value in self.profile.metrics.items()
        }


def _why_undecided(
    before: float, steps_before: int, now: float, steps_now: int, reference: str
) -> str:
    """
    Return why a total does not tell whether the step got worse; empty if it does.

    A step of unchanged code that traces now and then does so more often in more steps.
    """
    more = now > before > 0 and steps_now > steps_before
    fewer = now < before and steps_now < steps_before
    is_more_frequent = now * steps_before > (before + 1) * steps_now
    if not (fewer or (more and not is_more_frequent)):
        return ""
    of, theirs, over, over_theirs = (
        format_quantity(number, COUNT) for number in (now, before, steps_now, steps_before)
    )
    return f"{of} over {over} steps, {theirs} over {over_theirs} in {reference}"


def _within(metric: Metric, value: Value, before: float) -> str:
    """Return the tolerance that a value keeps, empty if it is further off."""
    assert value.number is not None
    tolerance = _TOLERANCE.get(metric.name, 0.0) if value.source is Source.TRACE else 0.0
    tolerance = float(value.detail.get("max_rise", tolerance))
    varies = float(value.detail.get("varies", 0.0))  # how far another sample may be off
    if abs(rounded(value.number) - before) > max(tolerance * abs(before), varies):
        return ""
    return format_quantity(tolerance, RATIO) if tolerance else format_quantity(varies, metric.unit)


def _fell(before: float | None, now: float | None) -> bool:
    return before is not None and now is not None and now < before


def _held(before: float | None, now: float | None) -> bool:
    return before is not None and now is not None and now >= before


def changed_setting(stored: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """List what differs in versions, precision policy and flags, in one line."""
    return "; ".join(one.what for one in setting_differences(stored, now))


def check(
    profile: Profile, metric: str, verdict: Verdict, wanted: str, sentence: str, **fields: Any
) -> Check:
    """Return a check of a comparison."""
    return Check(
        profile=profile.name,
        metric=metric,
        kind="baseline",
        verdict=verdict,
        wanted=wanted,
        sentence=sentence,
        **fields,
    )
