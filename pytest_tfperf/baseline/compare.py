"""A profile against its stored baseline: structure is decided exactly, timing is shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pytest_tfperf.baseline.store import Place, entry_key, read_entries, read_machine, rounded
from pytest_tfperf.checks import explanation
from pytest_tfperf.metrics import LOWER, METRICS, PLATFORM, PROGRAM, RATIO, Metric, format_quantity, told_apart
from pytest_tfperf.results import Check, Json, Profile, Source, Value, Verdict

_TOLERANCE = {"peak_memory": 0.10}  # measured on a CPU it differs by 7 % from step to step
_OF_SHAPES = frozenset({"flops", "half_precision", "padding_overhead", "mxu_padding_overhead"})
_RUNS_TO_DECIDE = 5
_SHOWN_TIMING = ("step_time",)  # the other timing rows are recorded; this is the one that is compared


def compare_with_baseline(
    profile: Profile, test: str, place: Place, environment: Mapping[str, Any], only: str | None, max_regression: float | None
) -> list[Check]:
    """
    The checks of one profile under `--tfperf-baseline`.

    Raises:
        BaselineError: If a baseline file cannot be read.
    """
    key = entry_key(test, profile.name)
    entry = read_entries(place.structure).get(key)
    missing = _missing(profile, entry, key, str(place.structure))
    if missing is not None:
        return [missing]
    checks: list[Check] = []
    if only != "timing":
        checks += _structure(profile, entry or {}, environment)
    if only != "structural":
        checks += _timing(profile, key, place, environment["machine"], max_regression)
    return checks


def _missing(profile: Profile, entry: Json | None, key: str, where: str) -> Check | None:
    if entry is None:
        return _check(profile, "baseline", Verdict.MISSING, "an entry", f"no baseline for {key!r} in {where}\n  try: {_UPDATE}")
    if entry["workload"] == profile.workload:
        return None
    differing = [name for name in {*entry["workload"], *profile.workload} if entry["workload"].get(name) != profile.workload.get(name)]
    shown = "; ".join(f"{n}: stored {entry['workload'].get(n)}, now {profile.workload.get(n)}" for n in sorted(differing))
    message = f"the baseline of {key!r} in {where} is for another workload ({shown})\n  try: pytest --tfperf-update, if the change is meant"
    return _check(profile, "baseline", Verdict.MISSING, "an entry for this workload", message)


_UPDATE = "record it with pytest --tfperf-update-new (what is missing) or --tfperf-update (all)"


def _structure(profile: Profile, entry: Json, environment: Mapping[str, Any]) -> Iterator[Check]:
    changed = _changed_setting(entry.get("setting", {}), environment["setting"])
    yield from _scope(profile, entry["program"], PROGRAM, changed)
    stored = entry["platform"].get(environment["platform"])
    if stored is not None:
        yield from _scope(profile, stored, PLATFORM, changed)
    elif entry["platform"]:
        known = " | ".join(sorted(entry["platform"]))
        message = f"platform metrics are stored for {known}, this is {environment['platform']}\n  try: {_UPDATE} on this platform"
        yield _check(profile, "platform", Verdict.INCOMPARABLE, "the same platform", message)


def _scope(profile: Profile, stored: Json, scope: str, changed: str) -> Iterator[Check]:
    for name, metric in METRICS.items():
        value = profile.metrics.get(name)
        if metric.scope != scope or value is None:
            continue
        if name in stored:
            yield _against(profile, metric, value, float(stored[name]), changed)
        elif value.number is not None:
            shown = format_quantity(value.number, metric.unit)
            yield _check(profile, name, Verdict.NEW, "a stored value", f"{name} is {shown}, and none is stored\n  try: {_UPDATE}")


def _against(profile: Profile, metric: Metric, value: Value, before: float, changed: str) -> Check:
    shown = format_quantity(before, metric.unit)
    wanted = f"{shown} (baseline)"
    if value.number is None:
        return _check(profile, metric.name, Verdict.UNKNOWN, wanted, f"{metric.name} is unknown, baseline {shown}: {value.why}")
    now, tolerance = float(rounded(value.number)), _TOLERANCE.get(metric.name, 0.0) if value.source is Source.TRACE else 0.0
    varies = float(value.detail.get("varies", 0.0))  # of a sample: how far another one may be off
    if abs(now - before) <= max(tolerance * abs(before), varies):
        within = format_quantity(tolerance, RATIO) if tolerance else format_quantity(varies, metric.unit)
        said = "as stored" if now == before else f"within {within} of the {shown} stored"
        return _check(profile, metric.name, Verdict.PASS, wanted, f"{metric.name} is {format_quantity(now, metric.unit)}, {said}")
    if metric.name in _OF_SHAPES and any(",?" in shape for shape in profile.workload.get("inputs", ())):
        change = f"{metric.name} is {format_quantity(now, metric.unit)}, {shown} stored"
        why = "it is that of the most common shapes, and batches differ in theirs from run to run"
        return _check(profile, metric.name, Verdict.INCONCLUSIVE, wanted, f"{change}: {why}\n  try: batches of one shape")
    better = metric.better is not None and (now < before) == (metric.better == LOWER)
    verdict = Verdict.IMPROVED if better else Verdict.REGRESSION
    message = f"{metric.name} changed from {shown} to {format_quantity(now, metric.unit)}{told_apart(before, now, metric.unit)}"
    lines = [message, *explanation(value)] + ([f"  changed besides: {changed}"] if changed else [])
    if better:
        lines = [message, "  try: pytest --tfperf-update, to hold it from now on"]
    return _check(profile, metric.name, verdict, wanted, "\n".join(lines))


def _timing(profile: Profile, key: str, place: Place, machine: Mapping[str, Any], max_regression: float | None) -> Iterator[Check]:
    path = place.timing_file(machine)
    entry = read_entries(path).get(place.timing_key(key))
    for name in _SHOWN_TIMING:
        value = profile.value(name)
        wanted = f"at most {format_quantity(max_regression, 'ratio')} slower" if max_regression is not None else "no slower"
        if value.number is None:
            if max_regression is not None:
                yield _check(profile, name, Verdict.UNKNOWN, wanted, f"{name} is unknown: {value.why}")
        elif entry is None or entry["workload"] != profile.workload:
            message = f"{name} is {format_quantity(value.number, 's')}; {_other_machines(place, key, machine)}"
            yield _check(profile, name, Verdict.INCOMPARABLE, wanted, f"{message}\n  try: {_UPDATE} on this machine")
        else:
            before = [run[name] for run in entry["runs"] if isinstance(run, dict) and name in run]
            shown = f"{format_quantity(before[-1], 's')} stored last, {format_quantity(value.number, 's')} now" if before else ""
            message = f"{name}: {shown}; collecting {min(len(before), _RUNS_TO_DECIDE)} of {_RUNS_TO_DECIDE} runs"
            yield _check(profile, name, Verdict.INCONCLUSIVE, wanted, message)


def _other_machines(place: Place, key: str, machine: Mapping[str, Any]) -> str:
    """Why there is nothing to compare with: which fields of the machine class differ."""
    for path in sorted(place.timing.glob("*.json")) if place.timing.is_dir() else []:
        if place.timing_key(key) in read_entries(path):
            stored = read_machine(path)
            differing = [f"{n}: stored {stored.get(n)}, here {machine.get(n)}" for n in machine if stored.get(n) != machine.get(n)]
            return f"it is stored for another machine class ({'; '.join(differing)})" if differing else "it is stored for another workload"
    return "no timing is stored for it"


def _changed_setting(stored: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    return "; ".join(f"{n} {stored[n]} → {now[n]}" for n in sorted(now) if n in stored and stored[n] != now[n])


def _check(profile: Profile, metric: str, verdict: Verdict, wanted: str, message: str) -> Check:
    return Check(profile=profile.name, metric=metric, kind="baseline", verdict=verdict, wanted=wanted, message=message)
