"""Checks of a paired test: each profile of the working tree compared with that of the ref."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pytest_tfperf.baseline.step_time import (
    Judgement,
    beside_clock,
    change_text,
    change_words,
    either_time,
    interval_text,
)
from pytest_tfperf.baseline.structure import against_profile, lost_compilation, structure_of
from pytest_tfperf.checks.limits import STRUCTURAL, TIMING, tolerated
from pytest_tfperf.differences.profiles import (
    CAST,
    LOOK_FURTHER,
    differences,
    dtype_change,
    setting_differences,
    with_differences,
    workload_differences,
)
from pytest_tfperf.quantities import RATIO, SHARE, format_quantity
from pytest_tfperf.results import Check, Profile, Verdict
from pytest_tfperf.stats.process_spread import (
    ProcessSpread,
    Residuals,
    busy_spread,
    process_spread,
    residuals,
)
from pytest_tfperf.stats.sequential import (
    CPU_SHARE,
    MOST_PAIRS,
    SINGLE_RATIO_BOUND,
    Decision,
    PairEstimate,
    StoppingRule,
    decide,
    planned_pairs,
)
from pytest_tfperf.text import Labelled, format_slowdown, format_slowdowns, headline, plural
from pytest_tfperf.turn import TURNS_WITH
from pytest_tfperf.turns.paired_test import (
    LaterTurns,
    PairedTest,
    PairedTurns,
    cpu_estimates,
    describe_spending,
    needed_budget,
    pair_estimates,
)
from pytest_tfperf.values import Json

KIND: Final = "against"

_SLOWER_HELP = (
    LOOK_FURTHER,
    ("if intended", "a larger max_regression"),
)
_SUSPECTED_HELP = "run it again, so that more pairs of processes can say the same"
_TOLERANCE_HELP = "a quieter machine, or a max_regression further than {} from what was found"
_NOISE_HELP = "a larger --tfperf-budget, or a quieter machine"
_CUT_HELP = (("try", "a larger --tfperf-budget-total"),)
_BUDGET_HELP = "--tfperf-budget {}, or a quieter machine"
# the distance to the tolerance ÷ half of the interval, for a decision in 9 of 10 cases:
# (2.9 + 1.28) ÷ 2.9, with 2.9 for the critical value and 1.28 for the quantile of 90 %
_MARGIN = 1.44

_NO_TURNS = (
    "this form of profiling gives no times; "
    "use tf_profile(step, data), tf_profile.steps(data) or a Keras loop"
)
_APART = "it was measured in a process of its own, in turns with {} and not with {}"
_MISSED = (
    "the two versions make different profiles, or in another order, "
    "so this one was never measured side by side"
)
_TOO_SHORT = "the loop had too few steps left for a turn{}; give it more data or epochs"
_DRAINING = (
    "the input's buffers were still draining on {}, so a slow pipeline may not show yet; "
    "give it more time (tfperf_max_seconds) or data"
)
_CPU = "step_cpu_time"
_CPU_UNKNOWN = "unknown in these turns: this system does not tell it, or too coarsely"
_CPU_FEW = "too few pairs of turns for a decision"
_LOADED = (
    "other processes used {} of the cores meanwhile, "
    "which makes the turns differ more: stop what else runs there"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Parameters of a paired run's decisions."""

    ref: str
    """Name of the git ref, or of what else is compared with."""
    n_tests: int
    constant: ProcessSpread
    """Spread between process pairs of the same code, where nothing else is known."""
    stored: Residuals = field(default_factory=Residuals)
    """Residuals of process pairs of earlier runs on this machine class."""
    earlier: Residuals = field(default_factory=Residuals)
    """Residuals of process pairs of the run's tests before this one."""
    budget_s: float
    """Seconds for the turns of a profile in all its process pairs."""
    cut: str = ""
    """What `--tfperf-budget-total` leaves to the test, where that is less than its budget."""
    only: str | None = None
    here: str = "the working tree"
    """Name of what is compared with the ref."""
    otherwise: str = "a ref on which it runs, or stored values (--tfperf-baseline)"
    """Advice where the ref cannot run a test."""
    is_same_platform: bool = True
    """False if the ref has another Python or other packages."""

    @property
    def n_pairs(self) -> int:
        """Most process pairs of a test."""
        return planned_pairs(self.budget_s)

    def spread(self, pairs: Sequence[PairEstimate] = ()) -> ProcessSpread:
        """Return the spread that is assumed for a test with these process pairs."""
        if any(pair.is_busy for pair in pairs):  # quiet runs and tests tell nothing of it
            constant = busy_spread(self.constant)
            return process_spread(constant, Residuals(), [residuals(pairs, constant)])
        return process_spread(
            self.constant, self.stored, (self.earlier, residuals(pairs, self.constant))
        )

    def rule(self, tolerance: float | None, pairs: Sequence[PairEstimate] = ()) -> StoppingRule:
        """Return the stopping rule for a test that allows this slow-down; `pairs` as above."""
        return StoppingRule(
            tolerance=tolerated(tolerance),
            n_tests=self.n_tests,
            process_sd=self.spread(pairs).sd,
            n_pairs=self.n_pairs,
        )


def undecided(
    paired: PairedTest, later: Mapping[str, LaterTurns], terms: Terms
) -> dict[str, Decision]:
    """
    Return the profiles that another process pair could decide, with the decision without it.

    While buffers drain, no turns decide, unless they cover whole epochs.
    """
    draining = {
        profile.name
        for profiles in (paired.tree_profiles, paired.ref_profiles)
        if isinstance(profiles, tuple)
        for profile in profiles
        if _is_draining(profile)
    }
    decisions = {}
    for name, found in later.items():
        if name in draining and not paired.turns[name].covers_epochs:
            continue
        pairs = pair_estimates(paired.turns[name], found)
        rule = terms.rule(paired.ready_pairs[name].tolerance, pairs)
        if decide(pairs, rule).verdict is Verdict.INCONCLUSIVE:
            decisions[name] = decide(pairs, rule, final=True)
    return decisions


def verdicts(
    paired: PairedTest,
    later: Mapping[str, LaterTurns],
    terms: Terms,
    absent: Check | None,
) -> list[Check]:
    """Return the checks of a test; for each profile `absent`, if the ref has nothing to compare."""
    tree = {profile.name: profile for profile in paired.tree_profiles or ()}
    ref_profiles = paired.ref_profiles if isinstance(paired.ref_profiles, tuple) else ()
    ref = {profile.name: profile for profile in ref_profiles}
    if absent is not None:
        return [replace(absent, profile=name) for name in tree]
    checks: list[Check] = []
    for name, profile in tree.items():
        checks += _of_profile(profile, ref.get(name), paired, later, terms)
    for name in [name for name in ref if name not in tree]:
        sentence = f"the profile is on {terms.ref} alone: {terms.here} has none of this name"
        checks.append(_check(ref[name], Verdict.NEW, sentence))
    return checks


def absent_check(verdict: Verdict, text: str, advice: str = "") -> Check:
    """Return the check of a test that the ref cannot run; lines after the first are an excerpt."""
    sentence, details = headline(text)
    return Check(
        profile="",
        metric=KIND,
        kind=KIND,
        verdict=verdict,
        wanted="the same test in both versions",
        sentence=sentence,
        details=details,
        advice=(("try", advice),) if advice else (),
    )


def _of_profile(
    profile: Profile,
    ref: Profile | None,
    paired: PairedTest,
    later: Mapping[str, LaterTurns],
    terms: Terms,
) -> Iterator[Check]:
    alone = f"is on {terms.here} alone"
    if ref is None:
        sentence = f"the profile {alone}: {terms.ref} has none of this name"
        yield _check(profile, Verdict.NEW, sentence)
        return
    if profile.workload != ref.workload:
        both = workload_differences(ref.workload, profile.workload, terms.ref)
        other = f"its workload {alone} ({both})"
        of_dtype = dtype_change(ref.workload, profile.workload, f"on {terms.ref}")
        found = _check(profile, Verdict.INCOMPARABLE, of_dtype or other)
        if of_dtype:
            found = replace(found, advice=(("try", CAST),))
            found = found.with_details(("nothing is compared", other))
        yield found
        return
    if terms.only != TIMING:
        yield from against_profile(profile, ref, terms.ref, KIND, terms.is_same_platform)
    if terms.only != STRUCTURAL:
        yield _step_time(profile, ref, paired, later, terms)


def _step_time(
    profile: Profile,
    ref: Profile,
    paired: PairedTest,
    later: Mapping[str, LaterTurns],
    terms: Terms,
) -> Check:
    """Return the check of a step time, or why there is nothing to compare."""
    ready_pair, turns = paired.ready_pairs.get(profile.name), paired.turns.get(profile.name)
    if others := profile.value("step_time").detail.get(TURNS_WITH):
        why = _APART.format(", ".join(others), terms.ref)
        return _not_timed(profile, Verdict.INCONCLUSIVE, f"not compared: {why}")
    if profile.name in paired.missed:
        return _not_timed(profile, Verdict.INCONCLUSIVE, f"not compared: {_MISSED}")
    if ready_pair is not None and turns is None and terms.cut:
        unreached = _not_timed(profile, Verdict.INCONCLUSIVE, f"not compared: {terms.cut}")
        return replace(unreached, advice=_CUT_HELP)
    if ready_pair is None or turns is None:
        # UNKNOWN fails the test, so only where the test asks for the comparison
        verdict = Verdict.INCONCLUSIVE if paired.tolerance is None else Verdict.UNKNOWN
        times = (one.value("step_time") for one in (profile, ref))
        why = next((time.why for time in times if time.number is None), None) or _NO_TURNS
        return _not_timed(profile, verdict, f"unknown: {why}")
    if not turns.pairs:
        why = _TOO_SHORT.format(ready_pair.steps_left(terms.here, terms.ref))
        return _not_timed(profile, Verdict.UNKNOWN, f"unknown: {why}")
    others = later.get(profile.name, LaterTurns())
    pairs = pair_estimates(turns, others)
    rule = terms.rule(ready_pair.tolerance, pairs)
    timed = _timing(profile, ref, decide(pairs, rule, final=True), turns, others, terms)
    tree_setting, ref_setting = paired.settings
    found = (*setting_differences(ref_setting, tree_setting), *differences(ref, profile))
    same: Json = {"platform": "", "setting": {}}
    lost = lost_compilation(structure_of(ref, same), "", profile)
    return with_differences(timed, found, ref, lost)


def _timing(
    profile: Profile,
    ref: Profile,
    decision: Decision,
    turns: PairedTurns,
    later: LaterTurns,
    terms: Terms,
) -> Check:
    every = (turns, *later.turns)
    pair_s = statistics.fmean(one.spent_s + one.waited_s for one in every)
    spread = terms.spread(decision.pairs)
    figures = _figures(decision, every, spread, [one.pairs for one in every])
    message = judge(decision, terms.ref, figures["before"], pair_s)
    versions = ((terms.here, profile), (terms.ref, ref))
    hides_waits = not turns.covers_epochs
    draining = [name for name, one in versions if hides_waits and _is_draining(one)]
    if draining:
        why = "input buffers were still draining"
        sentence = f"{message.sentence}; {why}"
        message = replace(message, verdict=Verdict.INCONCLUSIVE, sentence=sentence, why=why)
    else:
        message = _with_processor_time(message, (profile, ref), decision, turns, later, terms)
    figures = message.detail or figures
    limit = format_quantity(figures["tolerance"], RATIO)
    is_cut = bool(terms.cut) and message.verdict is Verdict.INCONCLUSIVE and not draining
    return Check(
        profile=profile.name,
        metric=message.metric,
        kind=KIND,
        verdict=message.verdict,
        wanted=f"at most {limit} {change_words(message.metric)[0]}",
        sentence=message.sentence,
        details=(
            *message.details,
            *((("", terms.cut),) if is_cut else ()),
            *_circumstances(decision, turns, later, message.verdict, draining, spread),
        ),
        advice=_CUT_HELP if is_cut else message.advice,
        detail=figures | message.reason,
    )


def _with_processor_time(
    clock: Judgement,
    profiles: tuple[Profile, Profile],
    decision: Decision,
    turns: PairedTurns,
    later: LaterTurns,
    terms: Terms,
) -> Judgement:
    """
    Let the processor time of the same turns decide where the clock does not.

    It is analysed once, when the clock ends, so that it never comes before a PASS of the clock.
    """
    every = (turns, *later.turns)
    is_busy = any(one.other_load is not None for one in every)
    found = _processor_time(profiles, decision.requested_tolerance, turns, later, terms)
    if isinstance(found, Judgement):
        return either_time(clock, found, is_busy)
    is_open = clock.verdict is Verdict.INCONCLUSIVE
    return beside_clock(clock, _CPU, found if is_open and is_busy else "")


def _processor_time(
    profiles: tuple[Profile, Profile],
    tolerance: float,
    turns: PairedTurns,
    later: LaterTurns,
    terms: Terms,
) -> Judgement | str:
    """Return the judgement of the processor time, or why it is none."""
    for one in profiles:  # it is unknown of steps that wait, and of threads that spin
        value = one.metrics.get(_CPU)
        if value is None or value.number is None:
            return (value.why if value is not None else None) or _CPU_UNKNOWN
    pairs = cpu_estimates(turns, later)
    if not pairs:
        return _CPU_UNKNOWN
    rule = terms.rule(tolerance, pairs)
    found = decide(pairs, replace(rule, error_share=CPU_SHARE), final=True)
    if found.low is None:
        return _CPU_FEW
    every = (turns, *later.turns)
    figures = _figures(found, every, terms.spread(pairs), [one.cpu_pairs for one in every])
    return replace(judge(found, terms.ref, figures["before"], 0.0, _CPU), detail=figures)


def judge(
    decision: Decision, ref: str, before_s: float, pair_s: float, metric: str = "step_time"
) -> Judgement:
    """Put a decision into words; `pair_s` is the mean time of a process pair, with its start."""
    found = change_text(decision.ratio, ref, before_s, before_s * decision.ratio, metric)
    limit, why = f"limit {format_quantity(decision.tolerance, RATIO)}", _why(decision, metric)
    said = "" if decision.verdict is Verdict.IMPROVED else f", {limit}"
    return Judgement(
        verdict=decision.verdict,
        metric=metric,
        sentence=f"{found}{said}; {why}" if why else f"{found}{said}",
        why=why,
        details=tuple(_details(decision, metric)),
        advice=_advice(decision, pair_s),
    )


def _why(decision: Decision, metric: str) -> str:
    """Return why a time is not decided; empty if it is."""
    if decision.verdict is not Verdict.INCONCLUSIVE:
        return ""
    if decision.low is None or decision.high is None:
        return "too few pairs of turns for a decision"
    if decision.is_suspected:
        return "too few pairs of processes show it"
    if decision.high < 1 + decision.tolerance:
        return "a pair of processes with too few turns to count was slower"
    return f"it may be {format_slowdowns(decision.low, decision.high, change_words(metric))}"


def _details(decision: Decision, metric: str) -> Iterator[Labelled]:
    yield "measured", _measured(decision, metric)
    if decision.requested_tolerance < decision.tolerance:
        requested = format_quantity(decision.requested_tolerance, RATIO)
        yield "limit", f"raised from {requested}: two processes of the same code differ too much"
    if decision.verdict is not Verdict.INCONCLUSIVE:
        return
    if decision.minimum_detectable_change is not None:
        smallest = format_quantity(decision.minimum_detectable_change, RATIO)
        yield "", f"a slow-down of {smallest} would have been found in 9 of 10 cases"


def _measured(decision: Decision, metric: str) -> str:
    """Return the interval, the pairs of turns, and the change in each process pair."""
    turns = plural(decision.n, "pair")
    text = f"{turns} of turns"
    if len(decision.pairs) > 1:
        words = change_words(metric)
        each = ", ".join(format_slowdown(one.ratio, words) for one in decision.pairs)
        text = f"{text} in {len(decision.pairs)} pairs of processes ({each})"
    if decision.by_single_ratios:
        one = "it" if decision.n == 1 else "each of them"
        differ = f"pairs of turns of the same code differ by up to {SINGLE_RATIO_BOUND:g} times"
        return f"{text}, decided by {one} alone: {differ}"
    if decision.low is None or decision.high is None:
        return f"{text}, too few for an interval"
    interval = interval_text(decision.low, decision.high, decision.confidence, metric)
    return f"{interval}, {text}"


def _advice(decision: Decision, pair_s: float) -> tuple[Labelled, ...]:
    if decision.verdict is Verdict.REGRESSION:
        return _SLOWER_HELP
    if decision.verdict is Verdict.INCONCLUSIVE:
        return (("try", _undecided_help(decision, pair_s)),)
    return ()


def _undecided_help(decision: Decision, pair_s: float) -> str:
    """Return the budget for as many process pairs as decide, unless no number would."""
    if decision.is_suspected:
        return _SUSPECTED_HELP
    if decision.low is None or decision.high is None:
        return _NOISE_HELP
    half_width = math.log(decision.high / decision.low) / 2
    distance = abs(math.log(decision.ratio) - math.log1p(decision.tolerance))
    n = len(decision.pairs)
    if distance * math.sqrt(MOST_PAIRS / n) < _MARGIN * half_width:
        enough = math.expm1(_MARGIN * half_width / math.sqrt(MOST_PAIRS / n))
        return _TOLERANCE_HELP.format(format_quantity(enough, RATIO))
    needed = max(n + 1, math.ceil(n * (_MARGIN * half_width / distance) ** 2))
    return _BUDGET_HELP.format(math.ceil(needed * pair_s))


def _circumstances(
    decision: Decision,
    turns: PairedTurns,
    later: LaterTurns,
    verdict: Verdict,
    draining: list[str],
    spread: ProcessSpread,
) -> Iterator[Labelled]:
    """Circumstances that limit what the turns can show."""
    if draining:
        yield "but", _DRAINING.format(" and ".join(draining))
    elif turns.exhausted and verdict is Verdict.INCONCLUSIVE:
        n = len(turns.pairs)
        yield "", f"the loop ended after {n} pairs of turns: give it more data or epochs"
    elif decision.low is None and not decision.by_single_ratios:
        yield "", needed_budget(turns, later)
    if later.why:
        yield "", later.why
    if verdict in (Verdict.PASS, Verdict.IMPROVED):
        return
    yield "", describe_spending(turns, later)
    if decision.low is not None:
        differ = format_quantity(spread.sd, RATIO)
        yield "", f"two processes of the same code differ by {differ}: {spread.source}"
    load = [one.other_load for one in (turns, *later.turns) if one.other_load is not None]
    if load:
        yield "", _LOADED.format(format_quantity(max(load), SHARE))


def _is_draining(profile: Profile) -> bool:
    return profile.value("step_time").detail.get("settled") is False


def _figures(
    decision: Decision,
    every: Sequence[PairedTurns],
    spread: ProcessSpread,
    times: Iterable[Iterable[Sequence[float]]],
) -> Json:
    """
    Numbers for reports: see `results.Check`.

    `times` are what was decided on, of each process pair. The time after is that before times the
    decided ratio, so that bounds and points agree.
    """
    pairs = [[tree_s, ref_s] for pair in times for tree_s, ref_s, *_ in pair]
    before = statistics.median(ref_s for _, ref_s in pairs)
    return {
        "before": before,
        "after": before * decision.ratio,
        "ratio": decision.ratio,
        "low": decision.low,
        "high": decision.high,
        "confidence": decision.confidence,
        "smallest": decision.minimum_detectable_change,
        "tolerance": decision.tolerance,
        "turns": pairs,
        "process_sd": spread.sd,
        "process_sd_source": spread.source,
        "process_pairs": [
            {"ratio": pair.ratio, "n": pair.n, "spent_s": turns.spent_s, "waited_s": turns.waited_s}
            for pair, turns in zip(decision.pairs, every, strict=False)
        ],
    }


def _not_timed(profile: Profile, verdict: Verdict, why: str) -> Check:
    return replace(_check(profile, verdict, f"step_time is {why}"), metric="step_time")


def _check(profile: Profile, verdict: Verdict, sentence: str) -> Check:
    return Check(
        profile=profile.name,
        metric=KIND,
        kind=KIND,
        verdict=verdict,
        wanted="the same in both versions",
        sentence=sentence,
    )
