"""The message on a decision of a paired run, by a template for each verdict."""

from __future__ import annotations

import math

from pytest_tfperf.metrics import RATIO, format_quantity
from pytest_tfperf.results import Verdict
from pytest_tfperf.stats.sequential_test import SINGLE_RATIO_BOUND, Decision, InterimResult
from pytest_tfperf.stats.signed_rank import format_ratio
from pytest_tfperf.text import plural

_SLOWER_HELP = (
    "look at which other metrics of the two versions differ; "
    "a larger max_regression, if the slow-down is meant"
)
_SUSPECTED_HELP = "run it again, so that a second pair of processes can say the same"
_PROCESSES_HELP = (
    "a max_regression further than {} from what was found; "
    "two processes of the same code differ as much, however many turns"
)
_NOISE_HELP = "a larger --tfperf-budget, or a quieter machine"


def decision_message(decision: Decision, metric: str, ref: str) -> tuple[str, str]:
    """
    Describe a decision.

    Args:
        decision: The decision.
        metric: Name of the metric, as in `step_time`.
        ref: Name of the git ref.

    Returns:
        The sentence, and what to try, which is empty where nothing is to be done.
    """
    found = _found(decision, metric, ref)
    if decision.verdict is Verdict.PASS:
        return found, ""
    if decision.verdict is Verdict.IMPROVED:
        return f"{found}: it is faster", ""
    if decision.verdict is Verdict.REGRESSION:
        return found, _SLOWER_HELP
    return f"{found}{_why_undecided(decision)}", _undecided_help(decision)


def _found(decision: Decision, metric: str, ref: str) -> str:
    """Return the ratio, with its bounds, and the tolerance."""
    first, *second = decision.pairs
    bounds = _bounds(first, f"{100 * decision.confidence:.3g} % interval")
    for one in second:
        bounds += f"; a second pair of processes: {format_ratio(one.ratio)} ({_bounds(one)})"
    wanted = f"wanted at most {format_quantity(decision.tolerance, RATIO)} slower"
    if decision.requested_tolerance < decision.tolerance:
        requested = format_quantity(decision.requested_tolerance, RATIO)
        wanted += f" (raised from {requested}: two processes of the same code differ as much)"
    return f"{metric} is {format_ratio(first.ratio)} times that of {ref} ({bounds}), {wanted}"


def _bounds(one: InterimResult, confidence: str = "") -> str:
    turns = f"{plural(one.n, 'pair')} of turns"
    if one.by_single_ratios:
        each = "it" if one.n == 1 else "each of them"
        differ = f"pairs of turns of the same code differ by up to {SINGLE_RATIO_BOUND:g} times"
        return f"{turns}, decided by {each} alone: {differ}"
    if one.low is None or one.high is None:
        return f"{turns}, too few for an interval of {100 * one.confidence:.3g} %"
    interval = f"{format_ratio(one.low)} to {format_ratio(one.high)}"
    return ", ".join(filter(None, (interval, confidence, turns)))


def _why_undecided(decision: Decision) -> str:
    """Return the reason, and the slow-down that would have been found."""
    why = ""
    if decision.pairs[0].verdict is Verdict.REGRESSION:
        why = (
            ": two pairs of processes disagree"
            if len(decision.pairs) == 2
            else ": it is suspected, and no second pair of processes ran"
        )
    if decision.minimum_detectable_change is None:
        return why
    smallest = format_quantity(decision.minimum_detectable_change, RATIO)
    return f"{why}; a slow-down of {smallest} would have been found in 9 of 10 cases"


def _undecided_help(decision: Decision) -> str:
    """More turns, unless it is the difference between processes that makes the interval wide."""
    last, floor = decision.pairs[-1], decision.resolvable_tolerance
    if len(decision.pairs) == 1 and last.verdict is Verdict.REGRESSION:
        return _SUSPECTED_HELP
    if last.low is None:
        return _NOISE_HELP
    half_width = math.log(last.ratio / last.low)
    if half_width < math.sqrt(2) * math.log1p(floor):
        return _PROCESSES_HELP.format(format_quantity(floor, RATIO))
    return _NOISE_HELP
