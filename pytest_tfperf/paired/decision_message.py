"""The message on a decision of a paired run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pytest_tfperf.differences.profiles import LOOK_FURTHER
from pytest_tfperf.quantities import RATIO, SECONDS, format_quantity
from pytest_tfperf.results import Verdict
from pytest_tfperf.stats.sequential import MOST_PAIRS, SINGLE_RATIO_BOUND, Decision
from pytest_tfperf.text import Labelled, format_slowdown, format_slowdowns, plural

_SLOWER_HELP = (
    LOOK_FURTHER,
    ("if intended", "a larger max_regression"),
)
_SUSPECTED_HELP = "run it again, so that more pairs of processes can say the same"
_TOLERANCE_HELP = "a quieter machine, or a max_regression further than {} from what was found"
_NOISE_HELP = "a larger --tfperf-budget, or a quieter machine"
_BUDGET_HELP = "--tfperf-budget {}, or a quieter machine"
# the distance to the tolerance ÷ half of the interval, for a decision in 9 of 10 cases:
# (2.9 + 1.28) ÷ 2.9, with 2.9 for the critical value and 1.28 for the quantile of 90 %
_MARGIN = 1.44


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionMessage:
    """Message on a decision: see `results.Check`."""

    sentence: str
    """The headline."""
    details: tuple[Labelled, ...]
    """Interval, process pairs and reasons, as labelled lines."""
    advice: tuple[Labelled, ...]
    """Labelled remedies."""


def decision_message(
    decision: Decision, metric: str, ref: str, before_s: float, pair_s: float
) -> DecisionMessage:
    """
    Describe a decision.

    Args:
        decision: The decision.
        metric: Name of the metric, as in `step_time`.
        ref: Name of the git ref.
        before_s: Median time on the ref, in seconds.
        pair_s: Mean seconds that a process pair took, with its start.
    """
    return DecisionMessage(
        sentence=f"{_found(decision, metric, ref, before_s)}{_limit(decision)}",
        details=tuple(_details(decision)),
        advice=_advice(decision, pair_s),
    )


def _found(decision: Decision, metric: str, ref: str, before_s: float) -> str:
    """Return the change, and both times."""
    times = [format_quantity(time_s, SECONDS) for time_s in (before_s, before_s * decision.ratio)]
    return f"{metric} is {format_slowdown(decision.ratio)} than {ref}: {' to '.join(times)}"


def _limit(decision: Decision) -> str:
    """Return the tolerance, and of an undecided time what it may be."""
    limit = f", limit {format_quantity(decision.tolerance, RATIO)}"
    if decision.verdict is Verdict.IMPROVED:
        return ""
    if decision.verdict is not Verdict.INCONCLUSIVE:
        return limit
    if decision.low is None or decision.high is None:
        return f"{limit}; too few pairs of turns for a decision"
    if decision.is_suspected:
        return f"{limit}; too few pairs of processes show it"
    return f"{limit}; it may be {format_slowdowns(decision.low, decision.high)}"


def _details(decision: Decision) -> Iterator[Labelled]:
    yield "measured", _measured(decision)
    if decision.requested_tolerance < decision.tolerance:
        requested = format_quantity(decision.requested_tolerance, RATIO)
        yield "limit", f"raised from {requested}: two processes of the same code differ too much"
    if decision.verdict is not Verdict.INCONCLUSIVE:
        return
    if decision.minimum_detectable_change is not None:
        smallest = format_quantity(decision.minimum_detectable_change, RATIO)
        yield "", f"a slow-down of {smallest} would have been found in 9 of 10 cases"


def _measured(decision: Decision) -> str:
    """Return the interval, the pairs of turns, and the change in each process pair."""
    turns = plural(decision.n, "pair")
    text = f"{turns} of turns"
    if len(decision.pairs) > 1:
        each = ", ".join(format_slowdown(one.ratio) for one in decision.pairs)
        text = f"{text} in {len(decision.pairs)} pairs of processes ({each})"
    if decision.by_single_ratios:
        one = "it" if decision.n == 1 else "each of them"
        differ = f"pairs of turns of the same code differ by up to {SINGLE_RATIO_BOUND:g} times"
        return f"{text}, decided by {one} alone: {differ}"
    if decision.low is None or decision.high is None:
        return f"{text}, too few for an interval"
    interval = format_slowdowns(decision.low, decision.high)
    return f"{interval} ({100 * decision.confidence:.3g} % interval), {text}"


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
