"""
Decide every limit and comparison of a test.

A step time that looks slower than the recorded ones is measured again, in a second, fresh process.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_tfperf.baseline.store import Place
from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.checks.limits import Limit, asked_for, check_limits
from pytest_tfperf.checks.roots import with_causes
from pytest_tfperf.errors import BaselineError, CaptureError, PairedError
from pytest_tfperf.frameworks.in_use import why_gpus_are_full
from pytest_tfperf.machine.description import default_branch, project_name
from pytest_tfperf.markers import is_marked
from pytest_tfperf.metrics.profile import so_far
from pytest_tfperf.plugin.options import Options
from pytest_tfperf.plugin.profiled_item import ProfiledItem
from pytest_tfperf.quantities import RATIO, SECONDS, format_quantity
from pytest_tfperf.results import Check, Kind, Profile, Verdict, without_praise
from pytest_tfperf.text import headline
from pytest_tfperf.turns.children import Spec, children, test_key
from pytest_tfperf.turns.messages import Judged
from pytest_tfperf.turns.names import file_of, key_in_file
from pytest_tfperf.turns.paired_test import run_paired_test
from pytest_tfperf.turns.pytest_child import ChildProcess, can_start_processes
from pytest_tfperf.turns.reports import last_lines, report_from
from pytest_tfperf.values import Json, Unknown

if TYPE_CHECKING:
    import pytest

    from pytest_tfperf.baseline.compare import Baseline
    from pytest_tfperf.stores.history import EarlierRuns


def checks_of(test: ProfiledItem) -> list[Check]:
    """Return the checks of a test whose body passed; none on the ref of a paired run."""
    test.is_decided = True
    limited, options = test.limited(), test.options
    profiles = [profile for profile, _ in limited]
    against: Sequence[Check] = ()
    if test.child is not None:
        setting = test.environment().get("setting", {})
        judged = test.child.checks(profiles, test.wanted.max_regression, setting)
        if judged is None:
            return []
        against = judged
    elif options.is_paired and not options.disable:
        against = [_nothing_compared()]
    shares = bool(limited) and test.on_shared_cpu()
    checks = _decided(test, limited, shares)
    if any(map(is_suspected, checks)):
        checks = _confirmed(test, checks)
    if not checks and is_marked(test.item) and not any(map(_is_measured, profiles)):
        checks = [_nothing_profiled("; ".join(profile.ended or "" for profile in profiles))]
    if unmade := test.unmade():
        checks.append(_not_made(unmade))
    checks = [_with_ref(check, options) if check.is_unasked else check for check in checks]
    return with_causes(without_praise([*checks, *against]), map(so_far, profiles))


def _decided(
    test: ProfiledItem,
    profiles: Iterable[tuple[Profile, tuple[Limit, ...]]],
    shared_cpu: bool = False,
) -> list[Check]:
    item = test.item
    file, key = file_of(item), key_in_file(item)
    return decide(profiles, test.wanted, file, key, test.options, test.environment(), shared_cpu)


def _confirmed(test: ProfiledItem, checks: Sequence[Check]) -> list[Check]:
    """Measure again in a second process, and return the checks with what it confirmed."""
    again: dict[str, Profile] = {}
    none = Unknown("the second process produced no such profile, or no step time")
    try:
        again = {profile.name: profile for profile in _profiled_again(test)}
    except PairedError as error:
        none = Unknown(str(error))
    second = {
        check.profile: check
        for check in _decided(test, [(profile, ()) for profile in again.values()])
        if check.is_of_step_time
    }
    return [
        confirmed(check, second.get(check.profile, none), _number(again, check))
        if is_suspected(check)
        else check
        for check in checks
    ]


def _with_ref(check: Check, options: Options) -> Check:
    """Return a check with the git ref to compare its time with."""
    return replace(check, detail={**check.detail, "ref": default_branch(options.rootdir)})


def _number(again: Mapping[str, Profile], check: Check) -> float | None:
    """Return the value of a check's metric in the second process, None if it is unknown."""
    profile = again.get(check.profile)
    return None if profile is None else profile.value(check.metric).number


def _profiled_again(test: ProfiledItem) -> tuple[Profile, ...]:
    """Profile a test in a new process; raises PairedError if it does not start or end there."""
    if not can_start_processes():
        raise PairedError("this system cannot stop processes")
    if why := why_gpus_are_full():
        raise PairedError(why)
    item, spec = test.item, Spec(who="the confirmation", changes={"pauses": False})
    try:
        with test.exclusive(test.announce):
            test.announce("possible regression: re-measuring in a second process")
            with children(item, [spec]) as [child]:
                paired = run_paired_test(child, None, test_key(item), (None, None), lambda _: None)
                if paired.tree_profiles is None:
                    raise PairedError(_why_not(item, child, paired.stopped))
                child.send(Judged(checks=None))
                child.next_event()
    except CaptureError as error:
        raise PairedError(str(error)) from error
    finally:
        test.announce("")
    return paired.tree_profiles


def _why_not(item: pytest.Item, child: ChildProcess, stopped: str | None) -> str:
    """Return why the test did not end."""
    reports: list[Any] = [report_from(item, data) for data in child.reports]
    bad = [report for report in reports if report.failed or report.skipped]
    text = last_lines(bad[0].longreprtext) if bad else f"  it stopped the run: {stopped}"
    return f"the test does not come to its end there:\n{text}"


def is_suspected(check: Check) -> bool:
    """Return whether a check is of a time of the step that is above the recorded ones."""
    is_slower = check.verdict is Verdict.REGRESSION
    return is_slower and check.kind == "baseline" and check.is_of_step_time


def confirmed(check: Check, second: Check | Unknown, again: float | None) -> Check:
    """
    Confirm a suspected check: it stays a regression unless a second process is not slower, by its
    check `second` and its time `again`, or without them.
    """
    if isinstance(second, Unknown):
        return _unconfirmed(check, second.why)
    if again is None or "after" not in second.detail:
        return _unconfirmed(check, second.sentence)
    took = format_quantity(again, SECONDS)
    figures = {**check.detail, "second": again}
    if is_suspected(second):
        same = check.with_details(("", f"confirmed in a second process: {took}"))
        return replace(same, detail=figures)
    is_good = second.verdict in (Verdict.PASS, Verdict.IMPROVED)
    which = "is no regression" if is_good else "does not decide it"
    why = f"{took} in a second process, which {which}"
    return replace(
        check,
        verdict=Verdict.INCONCLUSIVE,
        sentence=f"{check.sentence}; but {why}",
        details=(("", "processes of the same code differ as much here"),),
        advice=(
            (
                "try",
                "pytest --tfperf-against REF, which compares in turns; or a quieter machine",
            ),
        ),
        detail={**figures, "why": why},
    )


def _unconfirmed(check: Check, why: str) -> Check:
    first, excerpt = headline(f"could not be confirmed in a second process: {why}")
    return check.with_details(("", first), *excerpt)


def decide(
    profiles: Iterable[tuple[Profile, tuple[Limit, ...]]],
    wanted: Wanted,
    file: str,
    key: str,
    options: Options,
    environment: Json,
    shared_cpu: bool = False,
) -> list[Check]:
    """
    Check a test's limits, and compare it with the baseline under `--tfperf-baseline`; a test that
    asks for something and has profiled nothing has one check, which is UNKNOWN.
    """
    profiles = list(profiles)
    asked = any(asked_for(limit.metric, options.only) for limit in wanted.limits)
    compares = any(_allowed(wanted)) or options.baseline or options.is_paired
    if not profiles and (asked or compares):
        return [_nothing_profiled()]
    checks: list[Check] = []
    for profile, limits in profiles:
        checks += check_limits(profile, limits, options.only, shared_cpu)
        if options.baseline:
            # it loads NumPy, which no other check needs
            from pytest_tfperf.baseline.compare import compare_with_baseline

            try:
                checks += compare_with_baseline(
                    profile,
                    key,
                    _baseline(options, file),
                    environment,
                    options.only,
                    wanted.max_regression,
                    shared_cpu,
                )
            except BaselineError as error:
                checks.append(_unknown("baseline", str(error), profile.name))
        elif not (options.update or options.is_paired):
            checks += [
                _nothing_to_compare(profile, metric, argument, share)
                for metric, argument, share in _allowed(wanted)
                if asked_for(profile.registry[metric], options.only)
            ]
    if options.baseline and profiles:
        from pytest_tfperf.baseline.compare import lost_numbers

        with suppress(BaselineError):  # each profile has a check that says so
            made = {profile.name for profile, _ in profiles}
            checks += lost_numbers(_baseline(options, file), key, made)
    return checks


@functools.lru_cache(maxsize=1)
def _baseline(options: Options, file: str) -> Baseline:
    """Return the baseline of a test file, which the tests of a module read once."""
    from pytest_tfperf.baseline.compare import Baseline

    place = Place.of(file, options.rootdir, options.baseline_dir)
    return Baseline(place, _earlier_runs(options))


@functools.lru_cache(maxsize=1)
def _earlier_runs(options: Options) -> EarlierRuns | None:
    """Return the history's step times, None if the run has no history."""
    if options.history is None:
        return None
    from pytest_tfperf.stores.history import EarlierRuns

    return EarlierRuns(options.history, project_of(options), options.history_branch)


def project_of(options: Options) -> str:
    """Return the name of the project in the history."""
    return options.history_project or project_name(options.rootdir)


def _allowed(wanted: Wanted) -> Iterator[tuple[str, str, float]]:
    """Yield metric, argument and share of each regression that a test allows."""
    if wanted.max_regression is not None:
        yield "step_time", "max_regression", wanted.max_regression
    if wanted.max_python_calls_regression is not None:
        yield "python_calls", "max_python_calls_regression", wanted.max_python_calls_regression


def _nothing_profiled(why: str = "") -> Check:
    """Return the check of a test that should have profiled a step; by default it did not try."""
    why = why or "call tf_profile(step, data) in the test"
    return _unknown("profile", f"the test is to be profiled, and nothing was measured: {why}")


def _not_made(arguments: Iterable[str]) -> Check:
    """Return the check of limits whose profiles a test asked for, and that were not made."""
    return _unknown(
        "profile",
        "a profile that the test asked for was not made, so nothing was checked: "
        f"{', '.join(arguments)}; was its error caught, or its loop or trace never entered?",
    )


def _nothing_compared() -> Check:
    """Return the check of a test in a paired run that no other process ran."""
    return _unknown(
        "against",
        "not compared: a test that gets tf_profile by its name runs on one version; "
        "name tf_profile among the test's arguments",
    )


def _is_measured(profile: Profile) -> bool:
    """Return whether a profile has any number."""
    return any(value.number is not None for value in so_far(profile).metrics.values())


def _unknown(kind: Kind, message: str, profile: str = "") -> Check:
    sentence, details = headline(message)
    return Check(
        profile=profile,
        metric=kind,
        kind=kind,
        verdict=Verdict.UNKNOWN,
        wanted="a decision",
        sentence=sentence,
        details=details,
    )


def _nothing_to_compare(profile: Profile, metric: str, argument: str, share: float) -> Check:
    """Return the check of a comparison that a test asks for, and the run does not."""
    shown = format_quantity(share, RATIO)
    return Check(
        profile=profile.name,
        metric=metric,
        kind="baseline",
        verdict=Verdict.INCONCLUSIVE,
        wanted=f"at most {shown} {'slower' if metric == 'step_time' else 'more'}",
        sentence=f"{argument} of {shown} has nothing to compare with",
        advice=(("try", "run with --tfperf-baseline, or --tfperf-against a git ref"),),
    )
