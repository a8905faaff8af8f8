"""The message on a decision of a paired run, by a template for each verdict."""

from __future__ import annotations

import math

from pytest_tfperf.metrics import RATIO, format_quantity
from pytest_tfperf.results import Verdict
from pytest_tfperf.stats.group_sequential import SINGLE_RATIO_BOUND, Decision
from pytest_tfperf.stats.stopping_rule import MOST_PAIRS
from pytest_tfperf.text import format_ratio, plural

_SLOWER_HELP = (
    "look at which other metrics of the two versions differ; "
    "a larger max_regression, if the slow-down is meant"
)
_SUSPECTED_HELP = "run it again, so that more pairs of processes can say the same"
_TOLERANCE_HELP = "a quieter machine, or a max_regression further than {} from what was found"
_NOISE_HELP = "a larger --tfperf-budget, or a quieter machine"
_BUDGET_HELP = "--tfperf-budget {}, or a quieter machine"
# the distance to the tolerance ÷ half of the interval, for a decision in 9 of 10 cases:
# (2.9 + 1.28) ÷ 2.9, with 2.9 for the critical value and 1.28 for the quantile of 90 %
_MARGIN = 1.44


def decision_message(decision: Decision, metric: str, ref: str, pair_s: float) -> tuple[str, str]:
    """
    Describe a decision.

    Args:
        decision: The decision.
        metric: Name of the metric, as in `step_time`.
        ref: Name of the git ref.
        pair_s: Mean seconds that a process pair took, with its start.

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
    return f"{found}{_why_undecided(decision)}", _undecided_help(decision, pair_s)


def _found(decision: Decision, metric: str, ref: str) -> str:
    """Return the ratio, with its bounds, and the tolerance."""
    bounds = _bounds(decision)
    if len(decision.pairs) > 1:
        ratios = ", ".join(format_ratio(one.ratio) for one in decision.pairs)
        bounds += f"; pairs of processes: {ratios}"
    wanted = f"wanted at most {format_quantity(decision.tolerance, RATIO)} slower"
    if decision.requested_tolerance < decision.tolerance:
        requested = format_quantity(decision.requested_tolerance, RATIO)
        wanted += f" (raised from {requested}: two processes of the same code differ too much)"
    return f"{metric} is {format_ratio(decision.ratio)} times that of {ref} ({bounds}), {wanted}"


def _bounds(decision: Decision) -> str:
    turns = f"{plural(decision.n, 'pair')} of turns"
    if decision.by_single_ratios:
        each = "it" if decision.n == 1 else "each of them"
        differ = f"pairs of turns of the same code differ by up to {SINGLE_RATIO_BOUND:g} times"
        return f"{turns}, decided by {each} alone: {differ}"
    if decision.low is None or decision.high is None:
        return f"{turns}, too few for an interval"
    interval = f"{format_ratio(decision.low)} to {format_ratio(decision.high)}"
    return f"{interval}, {100 * decision.confidence:.3g} % interval, {turns}"


def _why_undecided(decision: Decision) -> str:
    """Return the reason, and the slow-down that would have been found."""
    why = ""
    if decision.is_suspected:
        why = ": too few pairs of processes show a slow-down"
    if decision.minimum_detectable_change is None:
        return why
    smallest = format_quantity(decision.minimum_detectable_change, RATIO)
    return f"{why}; a slow-down of {smallest} would have been found in 9 of 10 cases"


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
