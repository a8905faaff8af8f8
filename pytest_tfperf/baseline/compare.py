"""Comparison of a profile with its baseline: structure exactly, the step time by its interval."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pytest_tfperf.baseline.history import (
    CPU,
    DEVICE,
    cores_of,
    history_of,
    least_s,
    runs_of,
    steady_history_of,
)
from pytest_tfperf.baseline.step_time import (
    ACCEPT,
    UPDATE,
    StoredRuns,
    TimingFiles,
    Timings,
    TimingWords,
    judge,
    next_step,
    why_not_timed,
    with_steady_time,
)
from pytest_tfperf.baseline.store import OPS, Place, entry_key, read_structure
from pytest_tfperf.baseline.structure import (
    Reference,
    changed_setting,
    check,
    lost_compilation,
    structure_checks,
)
from pytest_tfperf.checks.limits import LEAST_SHOWN, SHARED_CPU, tolerated
from pytest_tfperf.differences.profiles import (
    CAST,
    dtype_change,
    function_differences,
    metric_differences,
    with_differences,
    work_differences,
    workload_differences,
)
from pytest_tfperf.errors import BaselineError
from pytest_tfperf.machine.description import class_differences, nearest_class
from pytest_tfperf.metrics.op_work import TABLE
from pytest_tfperf.quantities import RATIO, SECONDS, format_quantity
from pytest_tfperf.results import Check, Profile, Verdict
from pytest_tfperf.stats.prediction_interval import (
    RUNS_TO_DECIDE,
    History,
    compare_to_history,
)
from pytest_tfperf.values import Json

_BASELINE = Reference("the baseline", UPDATE, ACCEPT, ACCEPT)


class Baseline:
    """The baseline of one test file, whose structure is read once."""

    def __init__(self, place: Place, timings: Timings | None = None) -> None:
        self.place, self.has_times = place, timings is None
        self.timings = timings or TimingFiles()

    @cached_property
    def entries(self) -> Mapping[str, Json]:
        """The entries of the structure by key. Raises BaselineError if they cannot be read."""
        return read_structure(self.place.structure)


def compare_with_baseline(
    profile: Profile,
    test: str,
    baseline: Baseline,
    environment: Mapping[str, Any],
    only: str | None,
    max_regression: float | None,
    shared_cpu: bool = False,
) -> list[Check]:
    """Check one profile under `--tfperf-baseline`, with the value of `--tfperf-only` as `only`."""
    key = entry_key(test, profile.name)
    entry = baseline.entries.get(key)
    if entry is None or entry["workload"] != profile.workload:
        return [_missing(profile, entry, baseline.place.shown)]
    checks: list[Check] = []
    if only != "timing":
        checks += structure_checks(profile, entry, environment, _BASELINE)
    if only != "structural":
        try:
            asked = max_regression is not None or only == "timing"
            timed = _timing(
                profile, key, baseline, environment, entry, max_regression, shared_cpu, asked
            )
        except BaselineError as error:
            # a store that is away decides nothing; a file of the project has to be mended
            verdict = Verdict.UNKNOWN if baseline.has_times else Verdict.INCOMPARABLE
            found = profile.value("step_time").number
            shown = "unknown" if found is None else format_quantity(found, SECONDS)
            sentence = f"step_time is {shown}, and is compared with nothing: {error}"
            timed = check(profile, "step_time", verdict, _at_most(max_regression), sentence)
        checks += [timed] if timed else []
    return checks


def lost_numbers(baseline: Baseline, test: str, made: Collection[str]) -> list[Check]:
    """
    Check that a test made each numbered profile that the baseline has.

    A profile without a name that is left out gives its number to the next one, which would be
    compared with figures of another step.
    """
    of_test = [key for key in baseline.entries if key.startswith(f"{test}/")]
    return [
        Check(
            profile=name,
            metric="baseline",
            kind="baseline",
            verdict=Verdict.MISSING,
            wanted="the profile",
            sentence=f"{baseline.place.shown} has {entry_key(test, name)!r}, and the test made no "
            "such profile",
            details=(("numbers", "profiles without a name are numbered in their order"),),
            advice=(
                ("try", "give each profile of the test a name="),
                ("if intended", "delete the entry"),
            ),
        )
        for name in (key.removeprefix(f"{test}/") for key in of_test)
        if name.isdecimal() and name not in made
    ]


def time_check(
    profile: Profile,
    times: StoredTimes,
    max_regression: float | None,
    why_not: str | None,
    changed: str,
) -> Check:
    """Check the times of a step, of which step_time is known, against those of its machine."""
    value, tolerance = profile.value("step_time"), tolerated(max_regression)
    found = judge(value, times.clock, tolerance, why_not, changed, times.least)
    if why_not in (None, SHARED_CPU):
        is_busy = times.least < (value.number or 0.0)
        for stored in times.steady:
            found = with_steady_time(found, profile, stored, tolerance, changed, is_busy)
    return check(
        profile,
        found.metric,
        found.verdict,
        _at_most(max_regression),
        found.sentence,
        details=found.details,
        advice=found.advice,
        detail=found.detail,
    )


def _can_decide(profile: Profile, times: StoredTimes, tolerance: float) -> bool:
    """Return whether any of the times would show a slow-down of twice the tolerance."""
    for stored in (times.clock, *times.steady):
        value = profile.metrics.get(stored.metric)
        if value is not None and value.number and stored.history.runs:
            least = times.least if stored is times.clock else value.number / stored.moved
            found = compare_to_history(value.number, stored.history, tolerance, least)
            smallest = found.minimum_detectable_change
            if smallest is not None and smallest <= LEAST_SHOWN * found.tolerance:
                return True
    return False


def _unasked(undecided: Check) -> Check:
    """Mark a time that cannot be decided here, and that the test does not limit."""
    return replace(undecided, detail={**undecided.detail, "unasked": True})


def _missing(profile: Profile, entry: Json | None, where: str) -> Check:
    """Say that there is no baseline, or one for another workload."""
    if entry is None:
        return check(
            profile,
            "baseline",
            Verdict.MISSING,
            "an entry",
            f"no baseline in {where}",
            advice=next_step(UPDATE),
        )
    shown = workload_differences(entry["workload"], profile.workload)
    other = f"the baseline in {where} is for another workload ({shown})"
    of_dtype = dtype_change(entry["workload"], profile.workload, "in the baseline")
    return check(
        profile,
        "baseline",
        Verdict.MISSING,
        "an entry for this workload",
        of_dtype or other,
        details=(("nothing is compared", other),) if of_dtype else (),
        detail={"dtypes": True} if of_dtype else {},
        advice=(*next_step(of_dtype and CAST), ("if intended", "pytest --tfperf-update")),
    )


def _timing(
    profile: Profile,
    key: str,
    baseline: Baseline,
    environment: Mapping[str, Any],
    structure: Json,
    max_regression: float | None,
    shared_cpu: bool,
    is_asked: bool,
) -> Check | None:
    """Compare the step time; None if it is unknown here and there, and nobody asks for it."""
    value, wanted = profile.value("step_time"), _at_most(max_regression)
    machine, workload = environment["machine"], dict(profile.workload)
    place, timings = baseline.place, baseline.timings
    entry = timings.entry(place, key, machine, workload, tolerated(max_regression))
    same = entry is not None and entry["workload"] == workload
    known = entry is not None and same and bool(runs_of(entry))
    if value.number is None:
        if not known and not is_asked:
            return None
        sentence, is_limited = f"step_time is unknown: {value.why}", max_regression is not None
        verdict = Verdict.UNKNOWN if known or is_limited else Verdict.INCONCLUSIVE
        return check(profile, "step_time", verdict, wanted, sentence)
    if entry is None or not known:
        elsewhere = list(timings.elsewhere(place, key))
        verdict, other = _elsewhere(workload, elsewhere, machine)
        has_none = not elsewhere if entry is None else same
        found = check(
            profile,
            "step_time",
            verdict,
            wanted,
            f"step_time is {format_quantity(value.number, SECONDS)}; {other}",
            advice=next_step(timings.words.record),
        )
        return found if is_asked or not has_none else _unasked(found)
    times = stored_times(entry, profile, cores_of(machine), timings.words)
    timed = time_check(
        profile,
        times,
        max_regression,
        why_not_timed(profile, shared_cpu),
        changed_setting(structure.get("setting", {}), environment["setting"]),
    )
    is_open = timed.verdict is Verdict.INCONCLUSIVE
    if is_open and not is_asked and not _can_decide(profile, times, tolerated(None)):
        timed = _unasked(timed)
    platform = environment["platform"]
    ops = structure.get(OPS, {}).get(platform)
    is_slower = timed.verdict is Verdict.REGRESSION
    work = work_differences(ops, profile.tables.get(TABLE)) if ops and is_slower else ()
    called = structure.get("python_functions", {}).get(platform)
    shares = metric_differences(entry["runs"], profile)
    functions = function_differences(entry["runs"], called, profile)
    lost = lost_compilation(structure, platform, profile)
    return with_differences(timed, (*work, *shares, *functions), lead=lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTimes:
    """What the times of a step are compared with."""

    clock: StoredRuns
    """Its step times."""
    steady: tuple[StoredRuns, ...]
    """Its processor times and its device times, that other load hardly moves."""
    least: float
    """The least seconds that the new step may have taken without others."""


def stored_times(entry: Json, profile: Profile, cores: int, words: TimingWords) -> StoredTimes:
    """Return the history of a timing file's entry, as messages name it; both have a step time."""
    names = ("step_time", CPU, "other_load")
    values = {name: profile.metrics.get(name) for name in names}
    now = {name: one.number for name, one in values.items() if one and one.number is not None}
    steady = []
    for metric in (CPU, DEVICE):
        history, moved = steady_history_of(entry, metric, now.get("other_load"))
        runs = _stored_runs(entry, history, words)
        steady.append(replace(runs, metric=metric, moved=moved))
    clock = _stored_runs(entry, history_of(entry, cores), words)
    commits = tuple(str(run.get("commit", "")) for run in runs_of(entry))
    return StoredTimes(
        clock=replace(clock, commits=commits),
        steady=tuple(steady),
        least=least_s(now, cores),
    )


def _stored_runs(entry: Json, history: History, words: TimingWords) -> StoredRuns:
    first, n_runs = entry["anchor"].get("commit"), len(history.runs)
    n, since = history.n_anchor, f", from commit {first} on" if first else ""
    return StoredRuns(
        history=history,
        name=words.name,
        runs=f"the last {n_runs} runs" if n_runs > 1 else "the only run recorded",
        anchor=f"the first {n} runs{since}" if n > 1 else f"the first run{since}",
        newest=entry["runs"][-1].get("commit", ""),
        few=f"{n_runs} of {RUNS_TO_DECIDE} needed runs recorded",
        collect=words.collect,
        accept=words.accept,
    )


def _elsewhere(
    workload: Json, stored: Sequence[tuple[Json, Json]], machine: Mapping[str, Any]
) -> tuple[Verdict, str]:
    """Return verdict and reason where nothing can be compared: INCOMPARABLE of other machines."""
    found = nearest_class([one for one, of in stored if of == workload], machine)
    if found is None:
        why = "it is stored for another workload" if stored else "no timing is stored for it"
        return Verdict.INCONCLUSIVE, why
    if differing := class_differences(found, machine):
        why = f"it is stored for another machine class ({'; '.join(differing)})"
        return Verdict.INCOMPARABLE, why
    return Verdict.INCONCLUSIVE, "its history has no step time"


def _at_most(max_regression: float | None) -> str:
    return f"at most {format_quantity(tolerated(max_regression), RATIO)} slower"
