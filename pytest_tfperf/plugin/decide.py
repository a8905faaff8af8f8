"""Decide every limit and comparison of a test."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pytest_tfperf.baseline.store import Place
from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.checks.limits import STRUCTURAL, TIMING, Limit, asked_for, check_limits
from pytest_tfperf.errors import BaselineError
from pytest_tfperf.machine.description import project_name
from pytest_tfperf.metrics.profile import so_far
from pytest_tfperf.plugin.options import Options
from pytest_tfperf.quantities import RATIO, format_quantity
from pytest_tfperf.results import BROKEN, DECIDED, WORST_FIRST, Check, Kind, Profile, Verdict
from pytest_tfperf.text import headline
from pytest_tfperf.values import Json

if TYPE_CHECKING:
    from pytest_tfperf.run_history.earlier_runs import EarlierRuns


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
    Check a test's limits, and compare it with the baseline under `--tfperf-baseline`.

    A test that asks for something and has profiled nothing has one check, which is UNKNOWN.

    Args:
        profiles: The profiles of the test, each with its limits.
        wanted: The marker's arguments.
        file: The test's file, relative to the rootdir.
        key: The test's name in the file.
        options: The options of the run.
        environment: The environment of the steps, as `describe` returns it.
        shared_cpu: Whether other workers may have used the CPU.
    """
    profiles = list(profiles)
    asked = any(asked_for(limit.metric, options.only) for limit in wanted.limits)
    compares = any(_allowed(wanted)) or options.baseline or options.is_paired
    if not profiles and (asked or compares):
        return [nothing_profiled()]
    checks: list[Check] = []
    for profile, limits in profiles:
        checks += check_limits(profile, limits, options.only, shared_cpu)
        if options.baseline:
            # it loads NumPy, which no other check needs
            from pytest_tfperf.baseline.compare import compare_with_baseline

            place = Place.of(file, options.rootdir, options.baseline_dir)
            try:
                checks += compare_with_baseline(
                    profile,
                    key,
                    place,
                    environment,
                    options.only,
                    wanted.max_regression,
                    shared_cpu,
                    _earlier_runs(options),
                )
            except BaselineError as error:
                checks.append(_unknown("baseline", str(error), profile.name))
        elif not (options.update or options.is_paired):
            checks += [
                _nothing_to_compare(profile, metric, argument, share)
                for metric, argument, share in _allowed(wanted)
                if asked_for(profile.registry[metric], options.only)
            ]
    return checks


@functools.lru_cache(maxsize=1)
def _earlier_runs(options: Options) -> EarlierRuns | None:
    """Return the history's step times, None if the run has no history."""
    if options.history is None:
        return None
    from pytest_tfperf.run_history.earlier_runs import EarlierRuns

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


def fails(check: Check, options: Options) -> bool:
    """Return whether a check fails its test."""
    if check.verdict is Verdict.MISSING:
        return options.missing == "fail" or options.strict
    return check.verdict in BROKEN or (options.strict and check.verdict not in DECIDED)


def nothing_profiled(why: str = "") -> Check:
    """Return the check of a test that should have profiled a step; by default it did not try."""
    why = why or "call tf_profile(step, data) in the test"
    return _unknown("profile", f"the test is to be profiled, and nothing was measured: {why}")


def not_made(arguments: Iterable[str]) -> Check:
    """Return the check of limits whose profiles a test asked for, and that were not made."""
    return _unknown(
        "profile",
        "a profile that the test asked for was not made, so nothing was checked: "
        f"{', '.join(arguments)}; was its error caught, or its loop or trace never entered?",
    )


def nothing_compared() -> Check:
    """Return the check of a test in a paired run that no other process ran."""
    return _unknown(
        "against",
        "not compared: a test that gets tf_profile by its name runs on one version; "
        "name tf_profile among the test's arguments",
    )


def is_measured(profile: Profile) -> bool:
    """Return whether a profile has any number."""
    return any(value.number is not None for value in so_far(profile).metrics.values())


def with_late_limits(
    profiles: Iterable[tuple[Profile, tuple[Limit, ...]]], wanted: Wanted
) -> list[tuple[Profile, tuple[Limit, ...]]]:
    """
    Return profiles with their limits, and with those of a marker that was added later.

    Args:
        profiles: The profiles of a test, each with its limits.
        wanted: Arguments of the markers that the test has now.
    """
    return [
        (profile, (*limits, *(late for late in wanted.limits if not _has(limits, late))))
        for profile, limits in profiles
    ]


def _has(limits: Iterable[Limit], other: Limit) -> bool:
    """Return whether there is a limit of the same name, which goes first."""
    name = other.metric.name, other.relation
    return any((one.metric.name, one.relation) == name for one in limits)


def undecided(checks: tuple[Check, ...], options: Options) -> str | None:
    """Return the first verdict, in order of attention, that leaves a passing test undecided."""
    still_open = {check.verdict for check in checks if not fails(check, options)} - DECIDED
    named = [verdict.value for verdict in WORST_FIRST if verdict in still_open - {Verdict.NEW}]
    return named[0] if named else None


def n_unchecked(
    profiles: Sequence[tuple[Profile, tuple[Limit, ...]]], wanted: Wanted, only: str | None
) -> int:
    """
    Count the limits that `--tfperf-only` leaves out, those on a regression too.

    Args:
        profiles: The profiles of a test, each with its limits.
        wanted: Arguments of the test's markers.
        only: The value of `--tfperf-only`.
    """
    regressions = {
        STRUCTURAL: wanted.max_regression,
        TIMING: wanted.max_python_calls_regression,
    }
    left_out = [limit for _, limits in profiles for limit in limits]
    n_limits = sum(not asked_for(limit.metric, only) for limit in left_out)
    return n_limits + len(profiles) * (regressions.get(only or "") is not None)


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
    """
    Return the check of a comparison that a test asks for, and the run does not.

    Args:
        profile: The profile.
        metric: Name of the metric.
        argument: Name of the marker's argument.
        share: Its value.
    """
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
