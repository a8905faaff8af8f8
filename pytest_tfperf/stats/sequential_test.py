"""
Group sequential test: whether a step is slower than on a ref, by turns of one or two process pairs.

The process pair is a level of replication of its own. Two processes of the same code differ for as
long as they live (Kalibera and Jones, Rigorous Benchmarking in Reasonable Time, ISMM 2013). So a
regression needs a second, fresh pair of processes that shows it too.

One log ratio comes from each pair of turns, in random order (Laaber, Scheuner and Leitner, Software
Microbenchmarking in the Cloud, Empirical Software Engineering 24, 2019).

Interim analyses happen at planned sizes only, each with an equal part of the error (Bonferroni;
Dunn, Multiple Comparisons among Means, JASA 56, 1961). Analysing as often as one likes finds
something in any noise (Armitage, McPherson and Rowe, JRSS A 132, 1969).

Turns too few for an interval are decided by bounds on single ratios, if all of them agree: none of
them is within the factor that pairs of turns of the same code have been seen to differ by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from pytest_tfperf.results import Verdict
from pytest_tfperf.stats.signed_rank import POWER, estimate, needed_pairs, ratio_interval

INTERIM_SIZES = (8, 16, 32, 64, 128, 256, 512)
"""
Pairs of turns at which the ratios are analysed; the last analysis is at the end of the budget.

Beyond 512 pairs the differences between processes outweigh those between turns.
"""
ERROR = 0.05
"""
Bound on the chance of a wrong PASS of one test, and of any wrong REGRESSION of all tests.

Both hold where the true slow-down equals the tolerance. Tests are counted, not profiles: a second
profile of a test is one more chance.
"""
PAIR_SHARE = 0.5
"""Share of the budget that one process pair may use, so that a second pair can have as much."""
PINNED_PROCESS_SD = 0.0045
"""
Standard deviation of the log ratio between process pairs pinned to the same cores.

Source: benchmarks/paired.py, with one core each, on a virtual machine with two. Not yet measured
with more cores, or a GPU.
"""
UNPINNED_PROCESS_SD = 0.027
"""The same where processes cannot be pinned. Source: benchmarks/paired.py."""

SINGLE_RATIO_BOUND = 3.0
"""
Factor that the ratio of one pair of turns is taken to be within, where there is no interval.

Of 35,916 recorded pairs of turns of the same code 9 differ by more; on a busy machine 1 of 1,414.
A regression takes two process pairs, so it is false in 0.0007 % at most (95 % confidence). Source:
`benchmarks/paired.py turns`.
"""

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingRule:
    """
    The parameters of the test.

    Raises:
        ValueError: If one of them is below zero or not finite, or there is no test.
    """

    tolerance: float
    """Requested tolerance: the slow-down that is allowed, as a share."""
    n_tests: int
    """Number of tests in the run."""
    process_sd: float
    """Standard deviation of the log ratio between process pairs of the same code."""

    def __post_init__(self) -> None:
        bounded = 0 <= self.tolerance < math.inf and 0 <= self.process_sd < math.inf
        if not bounded or self.n_tests < 1:
            raise ValueError(
                "a stopping rule has a tolerance and a process_sd of zero or more and at least "
                f"one test, not {self}"
            )

    @property
    def error(self) -> float:
        """
        Chance that the analyses of one process pair err on one side of the tolerance.

        A regression needs two pairs, and both err with the square of it: at most 5 % for any of n
        tests.
        """
        return min(ERROR, math.sqrt(ERROR / self.n_tests))

    @property
    def confidence(self) -> float:
        """Confidence of the interval at one interim analysis."""
        return 1 - 2 * self.error / len(INTERIM_SIZES)

    @property
    def z(self) -> float:
        """Normal quantile of that confidence."""
        return -_NORMAL.inv_cdf(self.error / len(INTERIM_SIZES))

    @property
    def resolvable_tolerance(self) -> float:
        """The smallest tolerance that any number of turns could decide on."""
        return math.expm1(self.z * self.process_sd)

    @property
    def effective_tolerance(self) -> float:
        """The requested tolerance, or the resolvable one where that is larger."""
        return max(self.tolerance, self.resolvable_tolerance)


@dataclass(frozen=True, slots=True, kw_only=True)
class InterimResult:
    """The result of one interim analysis of one process pair."""

    verdict: Verdict | None
    """None to go on. REGRESSION is a suspicion until a second process pair shows it too."""
    ratio: float
    """Estimated time in the working tree ÷ time on the ref."""
    low: float | None
    """Lower bound of the ratio; None where there are too few pairs of turns for an interval."""
    high: float | None
    """Upper bound of the ratio, or None as for `low`."""
    confidence: float
    """Confidence of the interval."""
    n: int
    """Pairs of turns."""
    by_single_ratios: bool = False
    """True if the bounds on single ratios decided it, for want of an interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The verdict, with the estimate of the first process pair."""

    verdict: Verdict
    """Verdict on the ratio."""
    ratio: float
    """Time in the working tree ÷ time on the ref."""
    low: float | None
    """Lower bound of the ratio; None where there is no interval."""
    high: float | None
    """Upper bound of the ratio; None where there is no interval."""
    confidence: float
    """Confidence at one analysis; of all of a pair at least 1 − 2 × the rule's error."""
    n: int
    """Pairs of turns that were analysed."""
    tolerance: float
    """Effective tolerance."""
    requested_tolerance: float
    """Slow-down that the user tolerates, as a share."""
    resolvable_tolerance: float
    """Smallest tolerance that the machine can decide, as a share."""
    minimum_detectable_change: float | None
    """The slow-down found in 90 % of cases at this noise; None where there is no interval."""
    pairs: tuple[InterimResult, ...]
    """The last analysis of each process pair."""


def interim_analysis(
    log_ratios: Sequence[float], rule: StoppingRule, final: bool = False
) -> InterimResult:
    """
    Analyse the pairs of turns so far.

    Args:
        log_ratios: Natural logarithm of the time in the working tree ÷ that on the ref, for each
            randomised pair of turns.
        rule: The parameters of the test.
        final: Whether there will be no more turns.

    Raises:
        ValueError: If the number of pairs is neither a planned size nor final, or a sample is not
            finite.
    """
    n = len(log_ratios)
    if not final and n not in INTERIM_SIZES:
        sizes = ", ".join(map(str, INTERIM_SIZES))
        raise ValueError(f"{n} pairs of turns are not analysed: only {sizes}, and the end")
    undecided = Verdict.INCONCLUSIVE if final else None
    if n < needed_pairs(rule.confidence):
        ratio = estimate(log_ratios)
        decided = _by_single_ratios(log_ratios, rule) if final else None
        return InterimResult(
            verdict=decided or undecided,
            ratio=ratio,
            low=None,
            high=None,
            confidence=rule.confidence,
            n=n,
            by_single_ratios=decided is not None,
        )
    found = ratio_interval(log_ratios, rule.confidence)
    low = found.ratio / _widened(found.ratio / found.low, rule)
    high = found.ratio * _widened(found.high / found.ratio, rule)
    return InterimResult(
        verdict=_verdict(low, high, 1 + rule.effective_tolerance) or undecided,
        ratio=found.ratio,
        low=low,
        high=high,
        confidence=rule.confidence,
        n=n,
    )


def decide(pairs: Sequence[Sequence[float]], rule: StoppingRule) -> Decision:
    """
    Decide on the log ratios of one process pair, or of two where the first one is suspected.

    Turns count up to the first analysis that decides; later turns are not analysed.

    Raises:
        ValueError: If there is no pair or more than two, or a pair without turns.
    """
    if len(pairs) not in (1, 2):
        raise ValueError(f"one or two process pairs are decided on, not {len(pairs)}")
    first = _stopped(pairs[0], rule)
    results = [first]
    if first.verdict is Verdict.REGRESSION:
        results += [_stopped(pair, rule) for pair in pairs[1:]]
    return Decision(
        verdict=_overall(results),
        ratio=first.ratio,
        low=first.low,
        high=first.high,
        confidence=rule.confidence,
        n=first.n,
        tolerance=rule.effective_tolerance,
        requested_tolerance=rule.tolerance,
        resolvable_tolerance=rule.resolvable_tolerance,
        minimum_detectable_change=_minimum_detectable_change(results, rule),
        pairs=tuple(results),
    )


def minimum_detectable_change(half_width: float, rule: StoppingRule) -> float:
    """
    Slow-down that both of two process pairs find with 90 %.

    The lower end of both intervals is then above the tolerance. The half width, on the log scale,
    is z standard errors (Lehmann 1963, for the rank interval); the estimate is about normal.
    """
    quantiles = 1 + _NORMAL.inv_cdf(math.sqrt(POWER)) / rule.z
    return (1 + rule.effective_tolerance) * math.exp(half_width * quantiles) - 1


def passing_tolerance(half_width: float, rule: StoppingRule) -> float:
    """Tolerance that the same code passes with 90 %: the interval's upper end is then below it."""
    return math.expm1(half_width * (1 + _NORMAL.inv_cdf(POWER) / rule.z))


def _widened(factor: float, rule: StoppingRule) -> float:
    """Add `process_sd` to a half width, as a factor; squares of independent errors add up."""
    return math.exp(math.hypot(math.log(factor), rule.z * rule.process_sd))


def _verdict(low: float, high: float, bound: float) -> Verdict | None:
    if high < bound:
        return Verdict.IMPROVED if high < 1 else Verdict.PASS
    return Verdict.REGRESSION if low > bound else None


def _by_single_ratios(log_ratios: Sequence[float], rule: StoppingRule) -> Verdict | None:
    """Return the verdict that every pair of turns gives by itself, None where they give none."""
    low = math.exp(min(log_ratios)) / SINGLE_RATIO_BOUND
    high = math.exp(max(log_ratios)) * SINGLE_RATIO_BOUND
    return _verdict(low, high, 1 + rule.effective_tolerance)


def _stopped(log_ratios: Sequence[float], rule: StoppingRule) -> InterimResult:
    """Return the first analysis that decides, or the final one."""
    for size in INTERIM_SIZES[:-1]:
        if size <= len(log_ratios):
            found = interim_analysis(log_ratios[:size], rule)
            if found.verdict:
                return found
    return interim_analysis(log_ratios[: INTERIM_SIZES[-1]], rule, final=True)


def _overall(results: Sequence[InterimResult]) -> Verdict:
    """Return the first process pair's verdict; a regression only if a second pair confirms it."""
    verdict = results[0].verdict or Verdict.INCONCLUSIVE
    if verdict is not Verdict.REGRESSION:
        return verdict
    confirmed = len(results) == 2 and results[1].verdict is Verdict.REGRESSION
    return Verdict.REGRESSION if confirmed else Verdict.INCONCLUSIVE


def _minimum_detectable_change(
    results: Sequence[InterimResult], rule: StoppingRule
) -> float | None:
    """Return the change by the noisier process pair; None where one has no interval."""
    half_widths = [math.log(one.ratio / one.low) for one in results if one.low is not None]
    if len(half_widths) < len(results):
        return None
    return minimum_detectable_change(max(half_widths), rule)
