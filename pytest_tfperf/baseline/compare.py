"""A profile against its stored baseline: structure is decided exactly, the step time by its interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pytest_tfperf.analysis.differences import (
    metric_differences,
    setting_differences,
    with_differences,
    with_reasons,
    workload_differences,
)
from pytest_tfperf.baseline.history import history_of, rounded
from pytest_tfperf.baseline.record import structure_of
from pytest_tfperf.baseline.step_time import StoredRuns, figures, judge, next_step, why_not_timed
from pytest_tfperf.baseline.store import Place, entry_key, read_entries, read_machine
from pytest_tfperf.checks.limits import DEFAULT_TOLERANCE, explanation
from pytest_tfperf.machine.classes import differences, nearest_class
from pytest_tfperf.metrics import (
    LOWER,
    PLATFORM,
    PROGRAM,
    RATIO,
    SECONDS,
    Metric,
    format_quantity,
    told_apart,
)
from pytest_tfperf.results import Check, Profile, Verdict
from pytest_tfperf.stats.prediction_interval import RUNS_TO_DECIDE
from pytest_tfperf.values import Json, Source, Value

_TOLERANCE = {"peak_memory": 0.10}  # measured on a CPU it differs by 7 % from step to step
_OF_SHAPES = frozenset({"flops", "half_precision", "padding_overhead", "mxu_padding_overhead"})
_UPDATE = "record it with pytest --tfperf-update-new (what is missing) or --tfperf-update (all)"
_ACCEPT = "pytest --tfperf-update"


@dataclass(frozen=True, slots=True)
class Reference:
    """
    What a profile is compared with, as messages name it.

    `record` and `accept` say how a value gets there, if there is a way, and `meant` what to do about a change that is meant.
    """

    name: str
    record: str = ""
    accept: str = ""
    meant: str = ""


_BASELINE = Reference("the baseline", _UPDATE, _ACCEPT, _ACCEPT)


def compare_with_baseline(
    profile: Profile,
    test: str,
    place: Place,
    environment: Mapping[str, Any],
    only: str | None,
    max_regression: float | None,
    shared_cpu: bool = False,
) -> list[Check]:
    """
    Return the checks of one profile under `--tfperf-baseline`; `shared_cpu` says that other tests used the CPU that it ran on.

    Raises:
        BaselineError: If a baseline file cannot be read.
    """
    key = entry_key(test, profile.name)
    entry = read_entries(place.structure).get(key)
    missing = _missing(profile, entry, key, str(place.structure))
    if entry is None or missing is not None:
        return [missing] if missing else []
    checks: list[Check] = []
    if only != "timing":
        checks += structure_checks(profile, entry, environment, _BASELINE)
    if only != "structural":
        changed = changed_setting(entry["setting"], environment["setting"])
        checks += _timing(
            profile, key, place, environment["machine"], max_regression, shared_cpu, changed
        )
    return checks


def against_profile(profile: Profile, before: Profile, name: str, kind: str) -> list[Check]:
    """Return the structural checks of a profile against another of the same machine and workload, which messages call by this name."""
    same: Json = {"platform": "", "setting": {}}
    reference = Reference(name, meant=f"--tfperf-only timing, until {name} has it too")
    checks = structure_checks(profile, structure_of(before, same), same, reference)
    return [replace(with_reasons(found, before, profile), kind=kind) for found in checks]


def structure_checks(
    profile: Profile, entry: Json, environment: Mapping[str, Any], reference: Reference
) -> Iterator[Check]:
    """Return the checks of what holds on every machine, and of what holds on the platform where that is the same; `entry` as it is stored."""
    changed = changed_setting(entry["setting"], environment["setting"])
    yield from _scope(profile, entry["program"], PROGRAM, changed, reference)
    values = entry["platform"].get(environment["platform"])
    if values is not None:
        yield from _scope(profile, values, PLATFORM, changed, reference)
    elif entry["platform"]:
        known = " | ".join(sorted(entry["platform"]))
        message = f"platform metrics of {reference.name} are for {known}, this is {environment['platform']}"
        advice = next_step(reference.record and f"{reference.record} on this platform")
        yield check(
            profile, "platform", Verdict.INCOMPARABLE, "the same platform", message, advice=advice
        )


def time_check(
    profile: Profile,
    stored: StoredRuns,
    max_regression: float | None,
    why_not: str | None,
    changed: str,
) -> Check:
    """Return the check of a known step time against others of its machine class."""
    tolerance = DEFAULT_TOLERANCE if max_regression is None else max_regression
    value = profile.value("step_time")
    found = judge(value, stored, tolerance, why_not, changed)
    return check(
        profile,
        "step_time",
        found.verdict,
        _at_most(max_regression),
        found.sentence,
        details=found.details,
        advice=found.advice,
        detail=figures(value, stored, tolerance),
    )


def _missing(profile: Profile, entry: Json | None, key: str, where: str) -> Check | None:
    if entry is None:
        return check(
            profile,
            "baseline",
            Verdict.MISSING,
            "an entry",
            f"no baseline for {key!r} in {where}",
            advice=next_step(_UPDATE),
        )
    if entry["workload"] == profile.workload:
        return None
    shown = workload_differences(entry["workload"], profile.workload)
    return check(
        profile,
        "baseline",
        Verdict.MISSING,
        "an entry for this workload",
        f"the baseline of {key!r} in {where} is for another workload ({shown})",
        advice=next_step("pytest --tfperf-update, if the change is meant"),
    )


def _scope(
    profile: Profile, stored: Json, scope: str, changed: str, reference: Reference
) -> Iterator[Check]:
    for name, metric in profile.registry.items():
        value = profile.metrics.get(name)
        if metric.scope != scope or value is None:
            continue
        if name in stored:
            before = float(stored[name])
            yield replace(
                _against(profile, metric, value, before, changed, reference),
                detail={"before": before, "after": value.number},
            )
        elif value.number is not None:
            shown = format_quantity(value.number, metric.unit)
            yield check(
                profile,
                name,
                Verdict.NEW,
                f"a value in {reference.name}",
                f"{name} is {shown}, and {reference.name} has none",
                advice=next_step(reference.record),
            )


def _against(
    profile: Profile,
    metric: Metric,
    value: Value,
    before: float,
    changed: str,
    reference: Reference,
) -> Check:
    shown = format_quantity(before, metric.unit)
    wanted = f"{shown} ({reference.name.removeprefix('the ')})"
    if value.number is None:
        return check(
            profile,
            metric.name,
            Verdict.UNKNOWN,
            wanted,
            f"{metric.name} is unknown, {shown} in {reference.name}: {value.why}",
        )
    now, tolerance = (
        float(rounded(value.number)),
        _TOLERANCE.get(metric.name, 0.0) if value.source is Source.TRACE else 0.0,
    )
    varies = float(value.detail.get("varies", 0.0))  # of a sample: how far another one may be off
    if abs(now - before) <= max(tolerance * abs(before), varies):
        within = (
            format_quantity(tolerance, RATIO) if tolerance else format_quantity(varies, metric.unit)
        )
        said = (
            f"as in {reference.name}"
            if now == before
            else f"within {within} of the {shown} in {reference.name}"
        )
        return check(
            profile,
            metric.name,
            Verdict.PASS,
            wanted,
            f"{metric.name} is {format_quantity(now, metric.unit)}, {said}",
        )
    if metric.name in _OF_SHAPES and any(
        ",?" in shape for shape in profile.workload.get("inputs", ())
    ):
        change = (
            f"{metric.name} is {format_quantity(now, metric.unit)}, {shown} in {reference.name}"
        )
        why = "it is that of the most common shapes, and batches differ in theirs from run to run"
        return check(
            profile,
            metric.name,
            Verdict.INCONCLUSIVE,
            wanted,
            f"{change}: {why}",
            advice=next_step("batches of one shape"),
        )
    better = metric.better is not None and (now < before) == (metric.better == LOWER)
    verdict = Verdict.IMPROVED if better else Verdict.REGRESSION
    message = f"{metric.name} changed from {shown} to {format_quantity(now, metric.unit)}{told_apart(before, now, metric.unit)}"
    if better:
        advice = next_step(reference.accept and f"{reference.accept}, to hold it from now on")
        return check(profile, metric.name, verdict, wanted, message, advice=advice)
    details, advice = explanation(value)
    if changed:
        details = (*details, ("changed besides", changed))
    if reference.meant:
        advice = (*advice, ("if it is meant", reference.meant))
    return check(profile, metric.name, verdict, wanted, message, details=details, advice=advice)


def _timing(
    profile: Profile,
    key: str,
    place: Place,
    machine: Mapping[str, Any],
    max_regression: float | None,
    shared_cpu: bool,
    changed: str,
) -> Iterator[Check]:
    value, wanted = profile.value("step_time"), _at_most(max_regression)
    entry = read_entries(place.timing_file(machine)).get(place.timing_key(key))
    known = (
        entry is not None and entry["workload"] == profile.workload and bool(history_of(entry).runs)
    )
    if value.number is None:
        if known or max_regression is not None:
            yield check(
                profile, "step_time", Verdict.UNKNOWN, wanted, f"step_time is unknown: {value.why}"
            )
    elif entry is None or not known:
        message = f"step_time is {format_quantity(value.number, SECONDS)}; {_other_machines(profile, place, key, machine)}"
        yield check(
            profile,
            "step_time",
            Verdict.INCOMPARABLE,
            wanted,
            message,
            advice=next_step(f"{_UPDATE} on this machine"),
        )
    else:
        timed = time_check(
            profile,
            _stored_runs(entry),
            max_regression,
            why_not_timed(profile, shared_cpu),
            changed,
        )
        yield with_differences(timed, metric_differences(entry["runs"], profile))


def _stored_runs(entry: Json) -> StoredRuns:
    """Return the history of a timing file, in words."""
    history, first = history_of(entry), entry["anchor"].get("commit")
    n, since = history.n_anchor, f", from commit {first} on" if first else ""
    return StoredRuns(
        history=history,
        runs=f"the last {len(history.runs)} runs"
        if len(history.runs) > 1
        else "the only run recorded",
        anchor=f"the first {n} runs{since}" if n > 1 else f"the first run{since}",
        newest=entry["runs"][-1].get("commit", ""),
        few=f"collecting {len(history.runs)} of {RUNS_TO_DECIDE} runs",
        collect="pytest --tfperf-update again, or tfperf accept RUN.json of runs like this one",
        accept=_ACCEPT,
    )


def _other_machines(profile: Profile, place: Place, key: str, machine: Mapping[str, Any]) -> str:
    """Why there is nothing to compare with: which fields of the machine class differ, and what that means for times."""
    name, classes, elsewhere = place.timing_key(key), [], False
    for path in sorted(place.timing.glob("*.json")) if place.timing.is_dir() else []:
        entry = read_entries(path).get(name)
        elsewhere |= entry is not None
        if entry is not None and entry["workload"] == profile.workload:
            classes.append(read_machine(path))
    found = nearest_class(classes, machine)
    if found is None:
        return "it is stored for another workload" if elsewhere else "no timing is stored for it"
    differing = differences(found, machine)
    return (
        f"it is stored for another machine class ({'; '.join(differing)})"
        if differing
        else "its history has no step time"
    )


def _at_most(max_regression: float | None) -> str:
    return f"at most {format_quantity(DEFAULT_TOLERANCE if max_regression is None else max_regression, RATIO)} slower"


def changed_setting(stored: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What differs in versions, precision policy and flags, in one line."""
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
