"""One pytest run with tfperf in it: options, what the tests measured, and what is written at the end."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

from pytest_tfperf.baseline.compare import compare_with_baseline
from pytest_tfperf.baseline.store import Change, Place, entry_key, read_entries, record
from pytest_tfperf.capture.environment import commit, describe
from pytest_tfperf.checks import Limit, Wanted, asked_for, check_limits
from pytest_tfperf.errors import BaselineError, TfperfError
from pytest_tfperf.metrics import RATIO, format_quantity
from pytest_tfperf.options import Options
from pytest_tfperf.report.runfile import write_run
from pytest_tfperf.report.terminal import render
from pytest_tfperf.results import BROKEN, DECIDED, Check, Json, Profile, Run, TestRecord, Verdict

Line = tuple[str, "str | None"]
"""Text and its colour."""


def decide(profiles: Iterable[tuple[Profile, tuple[Limit, ...]]], wanted: Wanted, file: str, key: str, options: Options) -> list[Check]:
    """
    Every check of one test: its limits, and the comparison with the baseline where that is asked for.

    A test that asks for something and has profiled nothing has one check, and that is unknown.
    """
    profiles = list(profiles)
    asked = any(asked_for(limit.metric, options.only) for limit in wanted.limits)
    if not profiles and (asked or wanted.max_regression is not None or options.baseline):
        message = "the test asks for limits or a comparison, but profiled no step: call tf_profile(step, data) in it"
        return [_unknown("profile", message)]
    checks: list[Check] = []
    parallel = options.parallel and describe()["machine"]["accelerators"] == "none"
    for profile, limits in profiles:
        checks += check_limits(profile, limits, options.only, parallel)
        if options.baseline:
            place = Place.of(file, options.rootdir, options.baseline_dir)
            try:
                checks += compare_with_baseline(profile, key, place, describe(), options.only, wanted.max_regression)
            except BaselineError as error:
                checks.append(_unknown("baseline", str(error), profile.name))
        elif wanted.max_regression is not None and options.only != "structural" and not options.update:
            checks.append(_nothing_to_compare(profile, wanted.max_regression))
    return checks


def fails(check: Check, options: Options) -> bool:
    """Whether a check fails its test."""
    if check.verdict is Verdict.MISSING:
        return options.missing == "fail" or options.strict
    return check.verdict in BROKEN or (options.strict and check.verdict not in DECIDED)


def conclude(records: Iterable[Json], options: Options, whole: bool) -> tuple[list[Line], bool]:
    """
    What is done when all tests have run: baselines, reports, and whether enough was decided.

    Gives lines to show and whether all of it went well; `whole` says that no test was left out.
    """
    tests = [TestRecord.from_json(data) for data in records]
    lines: list[Line] = []
    bad: list[str] = []
    if options.update:
        changes, errors = _write_baselines(tests, options)
        recorded = sum(test.outcome == "passed" for test in tests)
        lines.append((f"tfperf: baseline: {len(changes)} entries written for {recorded} passing tests", None))
        lines += [(f"  {change.what}: {change.key} in {change.path}", None) for change in changes]
        lines += [
            (f"  not recorded: {entry_key(test.key, p.name)}: {p.ended}", "yellow") for test in tests for p in test.profiles if p.ended
        ]
        bad += errors
    if whole and (options.update or options.baseline):
        lines += [(f"tfperf: unused baseline entry {entry}", "yellow") for entry in _unused_entries(tests, options)]
    for path in options.reports:
        try:
            write_run(Run(created=_now(), tests=tuple(tests)), path)
            lines.append((f"tfperf: report written to {path}", None))
        except TfperfError as error:
            bad.append(str(error))
    decided = sum(check.verdict in DECIDED for test in tests for check in test.checks)
    if decided < options.min_checks:
        bad.append(f"{decided} checks were decided, fewer than the {options.min_checks} that --tfperf-min-checks asks for")
    return lines + [(f"tfperf: {text}", "red") for text in bad], not bad


def summary(records: Iterable[Json], width: int, verbosity: int) -> list[Line]:
    """The lines that sum a run up on a terminal of that width."""
    run = Run(created=_now(), tests=tuple(TestRecord.from_json(data) for data in records))
    return [(line.text, line.colour) for line in render(run, width, verbosity)] if run.tests else []


def _write_baselines(tests: Iterable[TestRecord], options: Options) -> tuple[list[Change], list[str]]:
    """Record the tests that passed, file by file; the changes, and what went wrong."""
    by_file: dict[str, list[TestRecord]] = {}
    for test in tests:
        if test.outcome == "passed":
            by_file.setdefault(test.file, []).append(test)
    changes: list[Change] = []
    errors = []
    for file, passed in sorted(by_file.items()):
        try:
            place = Place.of(file, options.rootdir, options.baseline_dir)
            changes += record(place, passed, commit(options.rootdir), options.update == "new")
        except BaselineError as error:
            errors.append(str(error))
    return changes, errors


def _unused_entries(tests: Iterable[TestRecord], options: Options) -> list[str]:
    """Baseline entries of the files that ran, whose test did not; one that failed may not have come to its profiles."""
    by_file: dict[str, list[TestRecord]] = {}
    for test in tests:
        by_file.setdefault(test.file, []).append(test)
    found = []
    for file, ran in sorted(by_file.items()):
        path = Place.of(file, options.rootdir, options.baseline_dir).structure
        try:
            found += [f"{path}: {key}" for key in sorted(read_entries(path)) if not any(_uses(test, key) for test in ran)]
        except BaselineError:
            continue  # the tests of that file have failed with it
    return found


def _uses(test: TestRecord, key: str) -> bool:
    if test.outcome != "passed" and f"{key}/".startswith(f"{test.key}/"):
        return True
    return key in {entry_key(test.key, profile.name) for profile in test.profiles}


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _unknown(kind: str, message: str, profile: str = "") -> Check:
    return Check(profile=profile, metric=kind, kind=kind, verdict=Verdict.UNKNOWN, wanted="a decision", message=message)


def _nothing_to_compare(profile: Profile, tolerance: float) -> Check:
    shown = format_quantity(tolerance, RATIO)
    message = f"max_regression of {shown} has nothing to compare with\n  try: run with --tfperf-baseline"
    return Check(
        profile=profile.name, metric="step_time", kind="baseline", verdict=Verdict.INCONCLUSIVE, wanted=f"at most {shown} slower",
        message=message,
    )  # fmt: skip
