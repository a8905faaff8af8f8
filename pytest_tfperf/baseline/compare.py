"""Comparison of a profile with its baseline: structure exactly, the step time by its interval."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

from pytest_tfperf.baseline.history import commits_of, history_of
from pytest_tfperf.baseline.step_time import (
    ACCEPT,
    UPDATE,
    StoredRuns,
    TimingFiles,
    Timings,
    judge,
    next_step,
    why_not_timed,
)
from pytest_tfperf.baseline.store import OPS, Place, entry_key, read_structure
from pytest_tfperf.baseline.structure import (
    Reference,
    changed_setting,
    check,
    lost_compilation,
    structure_checks,
)
from pytest_tfperf.checks.limits import tolerated
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
from pytest_tfperf.stats.prediction_interval import RUNS_TO_DECIDE
from pytest_tfperf.values import Json

_BASELINE = Reference("the baseline", UPDATE, ACCEPT, ACCEPT)


class Baseline:
    """
    The baseline of one test file, whose structure is read once.

    Args:
        place: Where it is.
        timings: Source of earlier step times; None for the timing files.
    """

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
    """
    Check one profile under `--tfperf-baseline`.

    Args:
        profile: The profile.
        test: Name of its test.
        baseline: The baseline of its test's file.
        environment: Machine and setting of this run.
        only: The value of `--tfperf-only`.
        max_regression: The slow-down that the test tolerates, if it says so.
        shared_cpu: Whether other tests used the CPU that it ran on.

    Raises:
        BaselineError: If the file of the structure cannot be read.
    """
    key = entry_key(test, profile.name)
    entry = baseline.entries.get(key)
    if entry is None or entry["workload"] != profile.workload:
        return [_missing(profile, entry, baseline.place.shown)]
    checks: list[Check] = []
    if only != "timing":
        checks += structure_checks(profile, entry, environment, _BASELINE)
    if only != "structural":
        try:
            timed = _timing(profile, key, baseline, environment, entry, max_regression, shared_cpu)
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

    Args:
        baseline: The baseline of the test's file.
        test: Name of the test.
        made: Names of the profiles that it made.

    Raises:
        BaselineError: If the file of the structure cannot be read.
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
    stored: StoredRuns,
    max_regression: float | None,
    why_not: str | None,
    changed: str,
) -> Check:
    """Check a known step time against others of its machine class."""
    value = profile.value("step_time")
    found = judge(value, stored, tolerated(max_regression), why_not, changed)
    return check(
        profile,
        "step_time",
        found.verdict,
        _at_most(max_regression),
        found.sentence,
        details=found.details,
        advice=found.advice,
        detail=found.detail,
    )


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
) -> Check | None:
    """Compare the step time; None if it is unknown here and there, and nobody limits it."""
    value, wanted = profile.value("step_time"), _at_most(max_regression)
    machine, workload = environment["machine"], dict(profile.workload)
    place, timings = baseline.place, baseline.timings
    entry = timings.entry(place, key, machine, workload, tolerated(max_regression))
    same = entry is not None and entry["workload"] == workload
    known = entry is not None and same and bool(history_of(entry).runs)
    if value.number is None:
        if not known and max_regression is None:
            return None
        sentence = f"step_time is unknown: {value.why}"
        return check(profile, "step_time", Verdict.UNKNOWN, wanted, sentence)
    if entry is None or not known:
        other = _other_machines(workload, list(timings.elsewhere(place, key)), machine)
        return check(
            profile,
            "step_time",
            Verdict.INCOMPARABLE,
            wanted,
            f"step_time is {format_quantity(value.number, SECONDS)}; {other}",
            advice=next_step(timings.words.record),
        )
    timed = time_check(
        profile,
        _stored_runs(entry, timings),
        max_regression,
        why_not_timed(profile, shared_cpu),
        changed_setting(structure["setting"], environment["setting"]),
    )
    platform = environment["platform"]
    ops = structure.get(OPS, {}).get(platform)
    is_slower = timed.verdict is Verdict.REGRESSION
    work = work_differences(ops, profile.tables.get(TABLE)) if ops and is_slower else ()
    called = structure.get("python_functions", {}).get(platform)
    shares = metric_differences(entry["runs"], profile)
    functions = function_differences(entry["runs"], called, profile)
    lost = lost_compilation(structure, platform, profile)
    return with_differences(timed, (*work, *shares, *functions), lead=lost)


def _stored_runs(entry: Json, timings: Timings) -> StoredRuns:
    """Return the history of a timing file, as messages name it."""
    history, first = history_of(entry), entry["anchor"].get("commit")
    n_runs = len(history.runs)
    n, since = history.n_anchor, f", from commit {first} on" if first else ""
    return StoredRuns(
        history=history,
        name=timings.words.name,
        runs=f"the last {n_runs} runs" if n_runs > 1 else "the only run recorded",
        anchor=f"the first {n} runs{since}" if n > 1 else f"the first run{since}",
        newest=entry["runs"][-1].get("commit", ""),
        commits=commits_of(entry),
        few=f"{n_runs} of {RUNS_TO_DECIDE} needed runs recorded",
        collect=timings.words.collect,
        accept=timings.words.accept,
    )


def _other_machines(
    workload: Json, stored: Sequence[tuple[Json, Json]], machine: Mapping[str, Any]
) -> str:
    """Explain why there is nothing to compare with: for example, the machine class differs."""
    found = nearest_class([one for one, of in stored if of == workload], machine)
    if found is None:
        return "it is stored for another workload" if stored else "no timing is stored for it"
    differing = class_differences(found, machine)
    return (
        f"it is stored for another machine class ({'; '.join(differing)})"
        if differing
        else "its history has no step time"
    )


def _at_most(max_regression: float | None) -> str:
    return f"at most {format_quantity(tolerated(max_regression), RATIO)} slower"
