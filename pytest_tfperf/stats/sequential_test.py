"""
Whether a step is slower than on a ref, from turns of one or two fresh pairs of processes: a verdict that holds on noisy machines.

Turns of one pair of processes are not the whole truth: two processes of the same code differ for as long as they live. So the
process pair is a level of replication of its own (Kalibera and Jones, Rigorous Benchmarking in Reasonable Time, ISMM 2013), and
a regression is given only when a second, fresh one says the same. One log ratio comes from each pair of turns in random order
(Laaber, Scheuner and Leitner, Software Microbenchmarking in the Cloud, Empirical Software Engineering 24, 2019). They are looked
at at planned sizes only, each look with an equal part of the error (Bonferroni; Dunn, Multiple Comparisons among Means, JASA 56,
1961): looking as often as one likes finds something in any noise (Armitage, McPherson and Rowe, JRSS A 132, 1969).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from pytest_tfperf.metrics import RATIO, format_quantity
from pytest_tfperf.results import Verdict
from pytest_tfperf.stats.signed_rank import (
    POWER,
    estimate,
    format_ratio,
    needed_pairs,
    ratio_interval,
)

LOOKS = (8, 16, 32, 64, 128, 256, 512)
"""Pairs of turns at which it is looked; where the budget is over before, the last look is there. Beyond 512 the spread is all."""
ERROR = 0.05
"""
The chance of a wrong PASS of a test, and of any wrong REGRESSION of all tests, where the truth is just the tolerance; both at most.

Tests are counted, not profiles: a second profile of a test is one chance more.
"""
PAIR_SHARE = 0.5
"""Share of the budget that one pair of processes may use, so that a second one can have as much."""
PINNED_SPREAD = 0.0045
"""
Standard deviation of the log ratio from one pair of processes to another, both pinned to the same cores: benchmarks/paired.py.

Seen where both had one core, of a virtual machine with two; not yet where they have more, or a GPU.
"""
UNPINNED_SPREAD = 0.027
"""The same where processes cannot be pinned: benchmarks/paired.py."""

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """
    What decides: the tolerance, how many tests were collected, and the spread, the standard deviation of the log ratio between
    process pairs of the same code.

    Raises:
        ValueError: If one of them is below zero or not finite, or there is no test.
    """

    tolerance: float
    n_tests: int
    spread: float

    def __post_init__(self) -> None:
        if not (
            0 <= self.tolerance < math.inf and 0 <= self.spread < math.inf and self.n_tests >= 1
        ):
            raise ValueError(
                f"a rule has a tolerance and a spread of zero or more and at least one test, not {self}"
            )

    @property
    def error(self) -> float:
        """
        The chance that all looks of one process pair together have of taking the tolerance itself for less, or for more.

        A regression needs two pairs, and both are wrong with the square of it: at most 5 % for any of n tests.
        """
        return min(ERROR, math.sqrt(ERROR / self.n_tests))

    @property
    def confidence(self) -> float:
        """That of the interval at one look."""
        return 1 - 2 * self.error / len(LOOKS)

    @property
    def z(self) -> float:
        """The normal quantile that belongs to it."""
        return -_NORMAL.inv_cdf(self.error / len(LOOKS))

    @property
    def floor(self) -> float:
        """The smallest tolerance that any number of turns could hold a process pair to."""
        return math.expm1(self.z * self.spread)

    @property
    def held(self) -> float:
        """The tolerance that is held: the floor at least."""
        return max(self.tolerance, self.floor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """
    What one process pair says at a look: the ratio of the times, and what bounds it, from `n` pairs of turns.

    A `verdict` of REGRESSION is a suspicion until a second process pair has it too; None says to go on. `low` and `high` are
    None where there are too few pairs of turns for an interval of this confidence.
    """

    verdict: Verdict | None
    ratio: float
    low: float | None
    high: float | None
    confidence: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """
    The verdict, and what the first process pair says; `pairs` holds the last look of each.

    `confidence` is that of one look; over all looks of a pair it is at least 1 − 2 × the rule's error. `tolerance` is the one
    that was held, raised from `raised_from` where that was below `floor`. `smallest` is the smallest slow-down that turns of
    this noise find in 90 % of cases; None where there is no interval.
    """

    verdict: Verdict
    ratio: float
    low: float | None
    high: float | None
    confidence: float
    n: int
    tolerance: float
    raised_from: float | None
    floor: float
    smallest: float | None
    pairs: tuple[Look, ...]


def look(log_ratios: Sequence[float], rule: Rule, final: bool = False) -> Look:
    """
    What the pairs of turns so far say; `final` where there will be no more.

    Args:
        log_ratios: The natural logarithm of the time in the working tree ÷ that on the ref, one for each randomised pair of turns.

    Raises:
        ValueError: If it is not the time to look: neither a planned size nor the end; or if a sample is not finite.
    """
    n = len(log_ratios)
    if not final and n not in LOOKS:
        raise ValueError(
            f"{n} pairs of turns are not looked at: only {', '.join(map(str, LOOKS))}, and the end"
        )
    if n < needed_pairs(rule.confidence):
        verdict = Verdict.INCONCLUSIVE if final else None
        return Look(
            verdict=verdict,
            ratio=estimate(log_ratios),
            low=None,
            high=None,
            confidence=rule.confidence,
            n=n,
        )
    found = ratio_interval(log_ratios, rule.confidence)
    low = found.ratio / _widened(found.ratio / found.low, rule)
    high = found.ratio * _widened(found.high / found.ratio, rule)
    verdict = _verdict(low, high, 1 + rule.held) or (Verdict.INCONCLUSIVE if final else None)
    return Look(
        verdict=verdict, ratio=found.ratio, low=low, high=high, confidence=rule.confidence, n=n
    )


def decide(pairs: Sequence[Sequence[float]], rule: Rule) -> Decision:
    """
    The decision on the log ratios of one process pair, or of two where the first one is suspected.

    The turns of a pair count up to the first look that decides, at the planned sizes and at the end; what follows is not looked at.

    Raises:
        ValueError: If there is no pair or more than two, or a pair without turns.
    """
    if len(pairs) not in (1, 2):
        raise ValueError(f"one or two process pairs are decided on, not {len(pairs)}")
    first = _stopped(pairs[0], rule)
    looks = (
        first,
        *(_stopped(pair, rule) for pair in pairs[1:] if first.verdict is Verdict.REGRESSION),
    )
    return Decision(
        verdict=_overall(looks),
        ratio=first.ratio,
        low=first.low,
        high=first.high,
        confidence=rule.confidence,
        n=first.n,
        tolerance=rule.held,
        raised_from=rule.tolerance if rule.tolerance < rule.held else None,
        floor=rule.floor,
        smallest=_smallest(looks, rule),
        pairs=looks,
    )


def smallest_change(half: float, rule: Rule) -> float:
    """
    The slow-down that both of two process pairs find with 90 %: the lower end of their intervals is then above the tolerance.

    The half width, on the log scale, is z standard errors, as Lehmann 1963 has it for the rank interval, and the estimate about normal.
    """
    return (1 + rule.held) * math.exp(half * (1 + _NORMAL.inv_cdf(math.sqrt(POWER)) / rule.z)) - 1


def passing_tolerance(half: float, rule: Rule) -> float:
    """The tolerance that two processes of the same code pass with 90 %: the upper end of such an interval is then below it."""
    return math.expm1(half * (1 + _NORMAL.inv_cdf(POWER) / rule.z))


def message(decision: Decision, what: str, ref: str) -> str:
    """What was found of `what`, say step_time, and wanted, in a sentence; what to do next in a second one."""
    first, *second = decision.pairs
    also = "".join(
        f"; a second pair of processes: {format_ratio(one.ratio)} ({_bounds(one)})"
        for one in second
    )
    confidence = f"{100 * decision.confidence:.3g} % interval"
    found = f"{what} is {format_ratio(first.ratio)} times that of {ref} ({_bounds(first, confidence)}{also})"
    wanted = f"wanted at most {format_quantity(decision.tolerance, RATIO)} slower"
    if decision.raised_from is not None:
        wanted += f" (raised from {format_quantity(decision.raised_from, RATIO)}: two processes of the same code differ as much)"
    return f"{found}, {wanted}{_ending(decision)}"


def _widened(factor: float, rule: Rule) -> float:
    """A half width, as a factor, with that of the spread added: the two errors are independent, so their squares add up."""
    return math.exp(math.hypot(math.log(factor), rule.z * rule.spread))


def _verdict(low: float, high: float, bound: float) -> Verdict | None:
    if high < bound:
        return Verdict.IMPROVED if high < 1 else Verdict.PASS
    return Verdict.REGRESSION if low > bound else None


def _stopped(log_ratios: Sequence[float], rule: Rule) -> Look:
    """The first look that decides."""
    sizes = (size for size in LOOKS[:-1] if size <= len(log_ratios))
    looks = (look(log_ratios[:size], rule) for size in sizes)
    return next((found for found in looks if found.verdict), None) or look(
        log_ratios[: LOOKS[-1]], rule, final=True
    )


def _overall(looks: Sequence[Look]) -> Verdict:
    """The verdict of the first process pair; a regression is one only if a second pair says so."""
    verdict = looks[0].verdict or Verdict.INCONCLUSIVE
    confirmed = [one.verdict for one in looks] == [Verdict.REGRESSION] * 2
    return Verdict.INCONCLUSIVE if verdict is Verdict.REGRESSION and not confirmed else verdict


def _smallest(looks: Sequence[Look], rule: Rule) -> float | None:
    """`smallest_change` of the noisier process pair; None where one has no interval."""
    if any(one.low is None for one in looks):
        return None
    return smallest_change(max(math.log(one.ratio / one.low) for one in looks if one.low), rule)


def _bounds(one: Look, confidence: str = "") -> str:
    turns = f"{one.n} pair{'s' * (one.n != 1)} of turns"
    if one.low is None or one.high is None:
        return f"{turns}, too few for an interval of {100 * one.confidence:.3g} %"
    return ", ".join(
        filter(None, (f"{format_ratio(one.low)} to {format_ratio(one.high)}", confidence, turns))
    )


def _ending(decision: Decision) -> str:
    if decision.verdict is Verdict.IMPROVED:
        return ": it is faster"
    if decision.verdict is Verdict.REGRESSION:
        return "\n  try: look at which other metrics of the two sides differ; a larger max_regression, if the slow-down is meant"
    if decision.verdict is Verdict.PASS:
        return ""
    why = ""
    if decision.pairs[0].verdict is Verdict.REGRESSION:
        why = (
            ": two pairs of processes disagree"
            if len(decision.pairs) == 2
            else ": it is suspected, and no second pair of processes ran"
        )
    if decision.smallest is not None:
        why += f"; a slow-down of {format_quantity(decision.smallest, RATIO)} would have been found in 9 of 10 cases"
    return f"{why}\n  try: {_what_helps(decision)}"


def _what_helps(decision: Decision) -> str:
    """More turns, where it is the turns that make the interval wide; not where process pairs do, or one has said enough."""
    last = decision.pairs[-1]
    if len(decision.pairs) == 1 and last.verdict is Verdict.REGRESSION:
        return "run it again, so that a second pair of processes can say the same"
    if last.low is not None and math.log(last.ratio / last.low) < math.sqrt(2) * math.log1p(
        decision.floor
    ):
        apart = format_quantity(decision.floor, RATIO)
        return f"a max_regression further than {apart} from what was found; two processes of the same code differ as much, however many turns"
    return "a larger --tfperf-budget, or a quieter machine"
