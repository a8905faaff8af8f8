"""From a match to checks: what each profile of the working tree is, held against that of the ref."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pytest_tfperf.analysis.differences import differences, setting_differences, with_differences
from pytest_tfperf.baseline.compare import against_profile
from pytest_tfperf.checks.limits import DEFAULT_TOLERANCE, STRUCTURAL, TIMING
from pytest_tfperf.metrics import RATIO, SECONDS, format_quantity
from pytest_tfperf.paired.coordinator import Match, Turns
from pytest_tfperf.results import Check, Profile, Verdict
from pytest_tfperf.stats.sequential_test import PAIR_SHARE, Decision, Rule, decide, message
from pytest_tfperf.stats.signed_rank import needed_pairs
from pytest_tfperf.turns import TURNS_WITH
from pytest_tfperf.values import Json

KIND = "against"
_NEW = "is on the working tree alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a paired run asks for: the name of the ref, how many tests are compared, the spread of process pairs, `--tfperf-only`."""

    ref: str
    n_tests: int
    spread: float
    only: str | None = None

    def rule(self, tolerance: float | None) -> Rule:
        """What decides on a test that allows this slow-down."""
        return Rule(
            tolerance=DEFAULT_TOLERANCE if tolerance is None else tolerance,
            n_tests=self.n_tests,
            spread=self.spread,
        )


def suspected(match: Match, terms: Terms) -> list[str]:
    """The profiles that the first pair of processes says are slower."""
    return [
        name
        for name, turns in match.turns.items()
        if turns.played
        and decide([turns.log_ratios], terms.rule(match.openings[name].tolerance)).pairs[0].verdict
        is Verdict.REGRESSION
    ]


def verdicts(
    match: Match, again: Mapping[str, Turns], terms: Terms, absent: Check | None
) -> list[Check]:
    """
    The checks of a test.

    Args:
        again: The turns of a second, fresh pair of processes, of the profiles that were suspected.
        absent: What is to be said of every profile, where the ref's side has none to compare with.
    """
    ref = {data["name"]: Profile.from_json(data) for data in match.ref_profiles or ()}
    checks: list[Check] = []
    for data in match.tree_profiles or ():
        profile = Profile.from_json(data)
        if absent is not None:
            checks.append(_of(profile, absent))
        elif profile.name not in ref:
            checks.append(
                _check(
                    profile, Verdict.NEW, f"the profile {_NEW}: {terms.ref} has none of this name"
                )
            )
        elif profile.workload != ref[profile.name].workload:
            before, now = ref[profile.name].workload, profile.workload
            differing = [
                key for key in dict.fromkeys([*now, *before]) if before.get(key) != now.get(key)
            ]
            both = "; ".join(
                f"{key}: {before.get(key)} on {terms.ref}, now {now.get(key)}" for key in differing
            )
            checks.append(_check(profile, Verdict.NEW, f"its workload {_NEW} ({both})"))
        else:
            checks += _compared(profile, ref[profile.name], match, again, terms)
    here = {data["name"] for data in match.tree_profiles or ()}
    gone = [profile for name, profile in ref.items() if name not in here and absent is None]
    return checks + [
        _check(
            profile,
            Verdict.NEW,
            f"the profile is on {terms.ref} alone: the working tree has none of this name",
        )
        for profile in gone
    ]


def _compared(
    profile: Profile, ref: Profile, match: Match, again: Mapping[str, Turns], terms: Terms
) -> list[Check]:
    checks = [] if terms.only == TIMING else list(against_profile(profile, ref, terms.ref, KIND))
    if terms.only == STRUCTURAL:
        return checks
    opening, turns = match.openings.get(profile.name), match.turns.get(profile.name)
    if others := profile.value("step_time").detail.get(TURNS_WITH):
        return [
            *checks,
            _check(
                profile,
                Verdict.INCONCLUSIVE,
                f"step_time is not compared: {_APART.format(', '.join(others))}",
                "step_time",
            ),
        ]
    if profile.name in match.missed:
        return [
            *checks,
            _check(
                profile, Verdict.INCONCLUSIVE, f"step_time is not compared: {_MISSED}", "step_time"
            ),
        ]
    if opening is None or turns is None:
        verdict = (
            Verdict.INCONCLUSIVE if match.tolerance is None else Verdict.UNKNOWN
        )  # which fails what was asked for
        return [
            *checks,
            _check(profile, verdict, f"step_time is unknown: {_NO_TURNS}", "step_time"),
        ]
    if not turns.played:
        return [
            *checks,
            _check(profile, Verdict.UNKNOWN, f"step_time is unknown: {_TOO_SHORT}", "step_time"),
        ]
    second = again.get(profile.name, Turns())
    pairs = [turns.log_ratios, *([second.log_ratios] if second.played else [])]
    timed = _timing(
        profile, ref, decide(pairs, terms.rule(opening.tolerance)), turns, second, terms
    )
    tree_setting, ref_setting = match.settings
    return [
        *checks,
        with_differences(
            timed, (*setting_differences(ref_setting, tree_setting), *differences(ref, profile))
        ),
    ]


_NO_TURNS = "this form of profiling gives no times; use tf_profile(step, data), tf_profile.steps(data) or a Keras loop"
_APART = "it was measured in a process of its own, in turns with {} and not with the ref"
_MISSED = "the test's other profiles are others on the ref, or in another order, and the two sides did not meet here"
_TOO_SHORT = "the loop had no steps left for turns; give it more data or epochs"
_DRAINING = "the input's buffers were still draining on {}, so a slow pipeline may not show yet; give it more time (tfperf_max_seconds) or data"

_LOADED = "other processes used {:.0%} of the sides' cores meanwhile, which makes the turns differ more: stop what else runs there"


def _is_draining(profile: Profile) -> bool:
    return profile.value("step_time").detail.get("settled") is False


def _timing(
    profile: Profile, ref: Profile, decision: Decision, turns: Turns, second: Turns, terms: Terms
) -> Check:
    wanted = f"at most {format_quantity(decision.tolerance, RATIO)} slower"
    verdict, said = decision.verdict, message(decision, "step_time", terms.ref)
    if draining := [
        side for side, one in (("the working tree", profile), (terms.ref, ref)) if _is_draining(one)
    ]:
        verdict, said = (
            Verdict.INCONCLUSIVE,
            f"{said}\n  but: {_DRAINING.format(' and '.join(draining))}",
        )
    elif turns.over and verdict is Verdict.INCONCLUSIVE:
        said = f"{said}\n  the loop ended after {len(turns.played)} pairs of turns: give it more data or epochs"
    elif decision.pairs[-1].low is None:
        said = f"{said}\n  {_more_turns(second if second.played else turns, decision.confidence)}"
    lines = [f"the second pair of processes could not run: {second.lost}"] if second.lost else []
    if verdict is not Verdict.PASS and (
        load := [share for share in (turns.others, second.others) if share is not None]
    ):
        lines.append(_LOADED.format(max(load)))
    return replace(
        _check(profile, verdict, said, "step_time", wanted).adding(lines),
        detail=_figures(decision, turns),
    )


def _more_turns(turns: Turns, confidence: float) -> str:
    """The budget that would have given enough turns for an interval."""
    needed, pair_s = needed_pairs(confidence), turns.spent_s / len(turns.played)
    budget_s = math.ceil(needed * pair_s / PAIR_SHARE)
    return f"a pair of turns took {format_quantity(pair_s, SECONDS)}, and {needed} are needed: --tfperf-budget {budget_s} at least"


def _figures(decision: Decision, turns: Turns) -> Json:
    """What a report shows: see `results.Check`."""
    pairs = [[tree_s, ref_s] for tree_s, ref_s, _ in turns.played]
    after, before = (statistics.median(seconds) for seconds in zip(*pairs, strict=True))
    bounds = {"low": decision.low, "high": decision.high, "confidence": decision.confidence}
    return {
        "before": before,
        "after": after,
        "ratio": decision.ratio,
        **bounds,
        "smallest": decision.smallest,
        "turns": pairs,
    }


def absent_check(verdict: Verdict, message: str) -> Check:
    """What is said of each profile of a test that the ref's side could not run."""
    return Check(
        profile="",
        metric=KIND,
        kind=KIND,
        verdict=verdict,
        wanted="the same test on the ref",
        message=message,
    )


def _of(profile: Profile, check: Check) -> Check:
    return replace(check, profile=profile.name)


def _check(
    profile: Profile,
    verdict: Verdict,
    message: str,
    metric: str = KIND,
    wanted: str = "the same on the ref",
) -> Check:
    return Check(
        profile=profile.name,
        metric=metric,
        kind=KIND,
        verdict=verdict,
        wanted=wanted,
        message=message,
    )
