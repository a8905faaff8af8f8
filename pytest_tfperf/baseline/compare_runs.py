"""Comparison of two runs: every profile in both, with the verdicts of `--tfperf-baseline`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from pytest_tfperf.baseline.compare import stored_times, time_check
from pytest_tfperf.baseline.history import cores_of
from pytest_tfperf.baseline.record import ENDED, check_environment
from pytest_tfperf.baseline.step_time import TimingWords, why_not_timed
from pytest_tfperf.baseline.store import entry_key
from pytest_tfperf.baseline.structure import (
    Reference,
    changed_setting,
    check,
    lost_compilation,
    stored,
    structure_checks,
    structure_of,
)
from pytest_tfperf.checks.roots import with_causes
from pytest_tfperf.differences.profiles import (
    differences,
    dtype_change,
    with_differences,
    workload_differences,
)
from pytest_tfperf.machine.description import class_differences
from pytest_tfperf.metric_registry import MACHINE
from pytest_tfperf.quantities import SECONDS, format_quantity
from pytest_tfperf.results import Check, Profile, Verdict, without_praise
from pytest_tfperf.runs import ProfiledTest, Run

KIND: Final = "compare"
_FIRST = Reference("the first file")
_ONE = "one run against one decides nothing but a doubled time"
_WORDS = TimingWords(
    name="the first file",
    record="",
    collect="five runs or more in a baseline (tfperf accept), "
    "or pytest --tfperf-against REF, which compares in turns",
    accept="",
)
Key = tuple[str, str, str]
"""File, test and profile."""


def compare_runs(before: Run, after: Run) -> Run:
    """
    Return the second run's tests with the checks of their profiles against the first run's.

    Tests that the second run lacks come last, without profiles.
    """
    old, new = profiles_by_key(before), profiles_by_key(after)
    checks: dict[Key, list[Check]] = {}
    for key, (profile, test) in new.items():
        found = (
            _compared(*old[key], profile, test)
            if key in old
            else [_alone(profile, Verdict.NEW, "second", test, before)]
        )
        compared = without_praise(replace(one, kind=KIND) for one in found)
        checks[key] = with_causes(compared, [profile])
    for key, (profile, test) in old.items():
        if key not in new:
            checks[key] = [_alone(profile, Verdict.MISSING, "first", test, after)]
    tests = [replace(test, checks=_of(test, checks)) for test in after.tests]
    there = {(test.file, test.key) for test in after.tests}
    gone = [
        replace(test, profiles=(), checks=_of(test, checks))
        for test in before.tests
        if (test.file, test.key) not in there
    ]
    return replace(after, tests=(*tests, *gone))


def profiles_by_key(run: Run) -> dict[Key, tuple[Profile, ProfiledTest]]:
    """Return a run's profiles with their tests; BaselineError if one does not say where it ran."""
    for test in run.tests:
        if test.profiles:
            check_environment(test)
    return {
        (test.file, test.key, profile.name): (profile, test)
        for test in run.tests
        for profile in test.profiles
    }


def _of(test: ProfiledTest, checks: dict[Key, list[Check]]) -> tuple[Check, ...]:
    return tuple(
        one
        for (file, name, _), found in checks.items()
        if (file, name) == (test.file, test.key)
        for one in found
    )


def _alone(profile: Profile, verdict: Verdict, which: str, test: ProfiledTest, other: Run) -> Check:
    """Report a profile that is in one file only; a test that failed in the other may be why."""
    outcomes = {one.outcome for one in other.tests if (one.file, one.key) == (test.file, test.key)}
    ended = [ENDED.get(outcome, outcome) for outcome in outcomes if outcome != "passed"]
    why = "".join(f"; in the other one the test {outcome}" for outcome in ended)
    message = f"{entry_key(test.key, profile.name)!r} is only in the {which} file{why}"
    return replace(
        check(profile, "profile", verdict, "a profile in both files", message), kind=KIND
    )


def _compared(
    before: Profile, old: ProfiledTest, profile: Profile, test: ProfiledTest
) -> Iterator[Check]:
    if before.workload != profile.workload:
        both = workload_differences(before.workload, profile.workload)
        other = f"the first file has it for another workload ({both})"
        of_dtype = dtype_change(before.workload, profile.workload, "in the first file")
        yield check(
            profile,
            "profile",
            Verdict.MISSING,
            "the same workload",
            of_dtype or other,
            details=(("nothing is compared", other),) if of_dtype else (),
        )
        return
    entry, platform = structure_of(before, old.environment), test.environment["platform"]
    yield from structure_checks(profile, entry, test.environment, _FIRST)
    if (
        before.value("step_time").number is not None
        or profile.value("step_time").number is not None
    ):
        timed = _timing(before, old, profile, test)
        lost = lost_compilation(entry, platform, profile)
        yield with_differences(timed, differences(before, profile), before, lost)


def _timing(before: Profile, old: ProfiledTest, profile: Profile, test: ProfiledTest) -> Check:
    """Compare two step times; one run each decides nothing but a doubled time."""
    wanted, then, now = "the same step_time", before.value("step_time"), profile.value("step_time")
    if now.number is None or now.number <= 0:
        before_s = format_quantity(then.number or 0.0, SECONDS)
        message = f"step_time is unknown, {before_s} in the first file: {now.why}"
        return check(profile, "step_time", Verdict.UNKNOWN, wanted, message)
    shown = format_quantity(now.number, SECONDS)
    if then.number is None or then.number <= 0:
        message = f"step_time is {shown}, and unknown in the first file: {then.why}"
        return check(profile, "step_time", Verdict.NEW, wanted, message)
    differing = class_differences(old.environment["machine"], test.environment["machine"])
    if differing:
        other = f"the first file is of another machine class ({'; '.join(differing)})"
        message = f"step_time is {shown}; {other}"
        return check(profile, "step_time", Verdict.INCOMPARABLE, wanted, message)
    why_then = why_not_timed(before, old.shared_cpu)
    why = why_not_timed(profile, test.shared_cpu) or (why_then and f"in the first file {why_then}")
    cores = cores_of(test.environment["machine"])
    entry = {"runs": [stored(before, MACHINE)], "anchor": {}}
    times = stored_times(entry, profile, cores, _WORDS)
    clock, *steady = (
        replace(one, runs=_WORDS.name, few=_ONE) for one in (times.clock, *times.steady)
    )
    return time_check(
        profile,
        replace(times, clock=clock, steady=tuple(steady)),
        test.max_regression,
        why,
        changed_setting(old.environment["setting"], test.environment["setting"]),
    )
