"""
Group sequential test: whether a step is slower than on a ref, by one estimate over process pairs.

The process pair is a level of replication of its own. Two processes of the same code differ for as
long as they live (Kalibera and Jones, Rigorous Benchmarking in Reasonable Time, ISMM 2013). So each
pair gives one estimate from its turns, and the estimates are averaged as in a random-effects
meta-analysis (DerSimonian and Laird, Controlled Clinical Trials 7, 1986): by the inverse of the
variance of the turns plus that between process pairs.

One log ratio comes from each pair of turns, in random order (Laaber, Scheuner and Leitner, Software
Microbenchmarking in the Cloud, Empirical Software Engineering 24, 2019).

An analysis follows each process pair and spends a planned part of the error. A regression rests on
at least two process pairs that each are slower than the tolerance allows, and an improvement on as
many that each are faster. A process pair with too few turns for an error has no part in the
estimate. If it is slower than the tolerance allows, the step does not pass.

Turns too few for an interval are decided by bounds on single ratios, if all of them agree: none of
them is within the factor that pairs of turns of the same code have been seen to differ by.

Analysing as often as one likes finds something in any noise (Armitage, McPherson and Rowe, JRSS A
132, 1969). So each analysis may spend a part of the error (Lan and DeMets, Discrete Sequential
Boundaries for Clinical Trials, Biometrika 70, 1983). The analyses share their data, so the values
come from the joint distribution; splitting the error without it would ask for more than is needed.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from pytest_tfperf.results import Verdict
from pytest_tfperf.stats.signed_rank import POWER, estimate, needed_pairs, ratio_interval

_STEP, _REACH = 0.02, 8.0  # of the grid, in standard deviations of one group and of the sum
PAIR_S = 6.0
"""
Seconds of turns of one process pair.

Source: benchmarks/paired.py. Twice as many pairs of half the turns find more, as long as the spread
between process pairs is larger than the error of a pair's turns.
"""
LEAST_PAIRS, MOST_PAIRS = 2, 16
"""Bounds on the process pairs of a test: a regression takes two, and each costs a start."""
USUAL_PAIRS, CLEARLY = 3, 1.25
"""
Process pairs that must each be slower for a regression, unless it is clear by this factor.

As many must each be faster for an improvement.

Processes of the same code differ by up to 12 % where steps write much memory, as layers of Keras,
and two pairs may agree by chance.
"""
ERROR = 0.005
"""
Bound on the chance of a wrong verdict of one test, on either side.

Both sides hold where the true slow-down equals the tolerance.
"""
CPU_SHARE = 0.2
"""
Share of the error of a REGRESSION that processor time may spend, where the clock decides nothing.

The clock has the rest, so that both together keep the bound. It decides on quiet machines, where a
fifth less error costs it 2 % of the change that it finds. Processor time has half of its noise on
busy ones.
"""
RUN_ERROR = 0.05
"""Bound on the chance of any wrong REGRESSION of a run; shared equally by its tests."""
SLOWER_POWER = 3
"""
Power of the share of pairs with which the error of a REGRESSION is spent.

Late analyses have most of it (power family; Kim and DeMets, Biometrika 74, 1987). That of a PASS is
spent evenly, since the same code should pass early.
"""
TURN_SIZES = (8, 11, 16, 23, 32, 45, 64, 91, 128, 181, 256, 362, 512)
"""
Pairs of turns after which the turns of a process pair may end before its time is over.

Beyond 512 pairs the differences between processes outweigh those between turns.
"""
SINGLE_RATIO_BOUND = 3.0
"""
Factor that the ratio of one pair of turns is taken to be within, where there is no interval.

Of 35,916 recorded pairs of turns of the same code 9 differ by more; on a busy machine 1 of 1,414.
A regression takes two process pairs, so it is false in 0.0007 % at most (95 % confidence). Source:
`benchmarks/paired.py turns`.
"""
ERROR_CONFIDENCE = 0.95
"""Confidence of the rank interval that the standard error of a pair's estimate comes from."""
LEAST_TURNS = needed_pairs(ERROR_CONFIDENCE)
"""The fewest pairs of turns for a standard error."""
_CHANCE = 0.999  # of pairs that differ as assumed: differences up to here widen no interval
BEYOND_DOUBT = 4.0
"""
Standard errors between a pair's estimate and the tolerance that end its turns early.

Other turns of the pair would not change the verdict: the chance is 3e-5 each time that it is asked.
A PASS needs 3.0 at the first analysis of 30 s, so this decides at once.
"""
_LEAST_VARIANCE = 1e-24  # of an estimate, so that equal ratios have a weight
_NORMAL = NormalDist()


@functools.cache
def critical_values(errors: tuple[float, ...]) -> tuple[float, ...]:
    """
    Return the critical value of each analysis, in standard errors of its estimate.

    `errors` are the one-sided chances of passing the value of each analysis and none before; 0 for
    an analysis that nothing may pass. The estimate is the mean of as many equal, independent normal
    groups as there were analyses. A sum that has passed its critical value is not followed further
    (Armitage, McPherson and Rowe 1969, by numerical integration).
    """
    if not errors or not all(0 <= error < 0.5 for error in errors):
        raise ValueError(f"errors are one or more shares from 0 to below 0.5, not {errors}")
    reach = _REACH * math.sqrt(len(errors))
    sums = np.arange(-reach, reach + _STEP, _STEP)
    group = _density(np.arange(-_REACH, _REACH + _STEP, _STEP))
    found: list[float] = []
    going_on = _density(sums)
    for n, error in enumerate(errors, start=1):
        if n > 1:
            going_on = np.convolve(going_on, group, mode="same") * _STEP
        bound = _bound(sums, going_on, error) if error else math.inf
        found.append(bound / math.sqrt(n))
        going_on = going_on * np.clip((bound - sums) / _STEP + 0.5, 0, 1)
    return tuple(found)


def _density(at: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    density: npt.NDArray[np.float64] = np.exp(-(at**2) / 2) / math.sqrt(2 * math.pi)
    return density


def _bound(sums: npt.NDArray[np.float64], density: npt.NDArray[np.float64], error: float) -> float:
    """Return the sum beyond which the density holds this chance."""
    beyond = np.cumsum(density[::-1])[::-1] * _STEP
    at = int(np.searchsorted(-beyond, -error))
    # the chance lies between two points of the grid, about linearly
    share = (beyond[at - 1] - error) / (beyond[at - 1] - beyond[at])
    return float(sums[at - 1] + (share - 0.5) * _STEP)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingRule:
    """The parameters of the test."""

    tolerance: float
    """Requested tolerance: the slow-down that is allowed, as a share."""
    n_tests: int
    """Number of tests in the run."""
    process_sd: float
    """Standard deviation of the log ratio between process pairs of the same code."""
    n_pairs: int
    """Most process pairs of the test."""
    error_share: float = 1 - CPU_SHARE
    """Share of the error of a REGRESSION that this time of the step may spend."""

    def __post_init__(self) -> None:
        bounded = 0 <= self.tolerance < math.inf and 0 <= self.process_sd < math.inf
        if not bounded or self.n_tests < 1 or self.n_pairs < LEAST_PAIRS:
            raise ValueError(
                "a stopping rule has a tolerance and a process_sd of zero or more, at least one "
                f"test and {LEAST_PAIRS} process pairs, not {self}"
            )

    @property
    def slower_error(self) -> float:
        """Chance of a REGRESSION by this time where the slow-down equals the tolerance."""
        return self.error_share * min(ERROR, RUN_ERROR / self.n_tests)

    def slower_z(self, n: int, final: bool = False) -> float:
        """
        Return the critical value of a REGRESSION after n process pairs.

        That of one pair only makes it suspected; it is the value of two. If `final`, all error is
        spent.
        """
        n = max(n, LEAST_PAIRS)
        spent = [(i / self.n_pairs) ** SLOWER_POWER if i >= LEAST_PAIRS else 0 for i in range(n)]
        spent.append(1.0 if final else (n / self.n_pairs) ** SLOWER_POWER)
        return _last_value(spent, self.slower_error)

    def passing_z(self, n: int, final: bool = False) -> float:
        """Return the critical value of a PASS; see `slower_z`."""
        spent = [i / self.n_pairs for i in range(n)]
        return _last_value([*spent, 1.0 if final else n / self.n_pairs], ERROR)

    def least_slower(self, low: float) -> int:
        """Return how many process pairs must each be slower than the tolerance for a REGRESSION."""
        is_clear = low > CLEARLY * (1 + self.effective_tolerance)
        return LEAST_PAIRS if is_clear else min(USUAL_PAIRS, self.n_pairs)

    def least_faster(self, high: float) -> int:
        """Return how many process pairs must each be faster for an improvement."""
        return LEAST_PAIRS if high < 1 / CLEARLY else min(USUAL_PAIRS, self.n_pairs)

    @property
    def resolvable_tolerance(self) -> float:
        """The smallest tolerance that any number of turns could decide on."""
        z = max(self.slower_z(self.n_pairs), self.passing_z(self.n_pairs))
        return math.expm1(z * self.process_sd / math.sqrt(self.n_pairs))

    @property
    def effective_tolerance(self) -> float:
        """The requested tolerance, or the resolvable one where that is larger."""
        return max(self.tolerance, self.resolvable_tolerance)


def planned_pairs(budget_s: float) -> int:
    """Return the most process pairs of a test with this budget."""
    return min(MOST_PAIRS, max(LEAST_PAIRS, round(budget_s / PAIR_S)))


def _last_value(spent: Sequence[float], error: float) -> float:
    """Return the last critical value, from the shares of the error that are spent by then."""
    parts = [error * (after - before) for before, after in itertools.pairwise(spent)]
    return critical_values(tuple(parts))[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairEstimate:
    """The turns of one process pair."""

    ratio: float
    """Estimated time in the working tree ÷ time on the ref."""
    is_busy: bool = False
    """True if other processes used enough of the cores meanwhile to matter."""
    error: float | None
    """Standard error of its logarithm, by the turns; None for too few of them."""
    least: float
    """Least ratio of a pair of turns."""
    greatest: float
    """Greatest ratio of a pair of turns."""
    n: int
    """Pairs of turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The verdict on some process pairs, with their common estimate."""

    verdict: Verdict
    """Verdict on the ratio; INCONCLUSIVE if more process pairs could decide."""
    ratio: float
    """Time in the working tree ÷ time on the ref."""
    low: float | None
    """Lower bound of the ratio; None where there is no interval."""
    high: float | None
    """Upper bound of the ratio; None where there is no interval."""
    confidence: float
    """Confidence of the interval at the last analysis."""
    tolerance: float
    """Effective tolerance."""
    requested_tolerance: float
    """Slow-down that the user tolerates, as a share."""
    resolvable_tolerance: float
    """Smallest tolerance that the machine can decide, as a share."""
    minimum_detectable_change: float | None
    """The slow-down found in 90 % of cases at this noise; None where there is no interval."""
    pairs: tuple[PairEstimate, ...]
    by_single_ratios: bool = False
    """True if the bounds on single ratios decided it, for want of an interval."""
    is_suspected: bool = False
    """True if too few process pairs show a regression."""

    @property
    def n(self) -> int:
        """Pairs of turns that were analysed."""
        return sum(pair.n for pair in self.pairs)


def pair_estimate(log_ratios: Sequence[float]) -> PairEstimate:
    """Return a pair's estimate of log ratios, tree ÷ ref; those beyond TURN_SIZES do not count."""
    counted = log_ratios[: TURN_SIZES[-1]]
    return PairEstimate(
        ratio=estimate(counted),
        error=standard_error(counted),
        least=math.exp(min(counted)),
        greatest=math.exp(max(counted)),
        n=len(counted),
    )


def standard_error(log_ratios: Sequence[float]) -> float | None:
    """
    Return the standard error of the Hodges–Lehmann estimate; None for too few ratios.

    The rank interval is z standard errors to either side (Lehmann 1963). Outlying turns count as
    little as there.
    """
    if len(log_ratios) < LEAST_TURNS:
        return None
    found = ratio_interval(log_ratios, ERROR_CONFIDENCE)
    z = -_NORMAL.inv_cdf((1 - found.confidence) / 2)
    return math.log(found.high / found.low) / 2 / z


def has_enough_turns(log_ratios: Sequence[float], rule: StoppingRule) -> bool:
    """
    Return whether further turns of this process pair would not change the verdict.

    The clock alone says so: processor time decides nothing where the clock does.
    """
    n = len(log_ratios)
    if n not in TURN_SIZES:
        return n > TURN_SIZES[-1]
    pair = pair_estimate(log_ratios)
    assert pair.error is not None  # the least of the sizes has one
    off = abs(math.log(pair.ratio) - math.log1p(rule.effective_tolerance))
    return n == TURN_SIZES[-1] or off > BEYOND_DOUBT * math.hypot(rule.process_sd, pair.error)


def decide(pairs: Sequence[PairEstimate], rule: StoppingRule, final: bool = False) -> Decision:
    """Decide on all process pairs so far; called after each, until it decides or is `final`."""
    if not 1 <= len(pairs) <= rule.n_pairs:
        raise ValueError(f"1 to {rule.n_pairs} process pairs are decided on, not {len(pairs)}")
    found = _analysis(pairs, rule, final=False)
    if final and found.verdict is Verdict.INCONCLUSIVE:
        return _analysis(pairs, rule, final=True)
    return found


def minimum_detectable_change(error: float, rule: StoppingRule, n: int) -> float:
    """Return the slow-down that is found in 90 % of cases after the last of n process pairs."""
    quantiles = rule.slower_z(n, final=True) + _NORMAL.inv_cdf(POWER)
    return (1 + rule.effective_tolerance) * math.exp(quantiles * error) - 1


def passing_tolerance(error: float, rule: StoppingRule, n: int) -> float:
    """Return the tolerance that the same code passes in 90 % of cases; Args: as above."""
    return math.expm1((rule.passing_z(n, final=True) + _NORMAL.inv_cdf(POWER)) * error)


def _analysis(estimates: Sequence[PairEstimate], rule: StoppingRule, final: bool) -> Decision:
    """Return the decision on the common estimate; pairs without an error do not count in it."""
    measured = [(math.log(one.ratio), one.error) for one in estimates if one.error is not None]
    if not measured:
        return _by_single_ratios(estimates, rule, final)
    weights = [1 / max(rule.process_sd**2 + error**2, _LEAST_VARIANCE) for _, error in measured]
    n, logs = len(measured), [log for log, _ in measured]
    middle = _weighted(logs, weights)
    error = _birge_ratio(logs, weights, middle) / math.sqrt(sum(weights))
    slower_z, passing_z = rule.slower_z(n, final), rule.passing_z(n, final)
    low, high = math.exp(middle - slower_z * error), math.exp(middle + passing_z * error)
    suggested = _verdict(low, high, 1 + rule.effective_tolerance)
    # where one pair's turns were disturbed, the other has all the weight and would decide alone
    bound = 1 + rule.effective_tolerance
    n_slower = sum(one.ratio > bound for one in estimates if one.error is not None)
    n_faster = sum(one.ratio < 1 for one in estimates if one.error is not None)
    suggested = _confirmed(suggested, n_faster >= rule.least_faster(high), final)
    if any(one.error is None and one.ratio > bound for one in estimates) and high < bound:
        suggested = None  # the interval leaves out what that pair shows
    is_suspected = suggested is Verdict.REGRESSION and n_slower < rule.least_slower(low)
    return Decision(
        verdict=Verdict.INCONCLUSIVE if suggested is None or is_suspected else suggested,
        ratio=math.exp(middle),
        low=low,
        high=high,
        confidence=1 - _NORMAL.cdf(-slower_z) - _NORMAL.cdf(-passing_z),
        tolerance=rule.effective_tolerance,
        requested_tolerance=rule.tolerance,
        resolvable_tolerance=rule.resolvable_tolerance,
        minimum_detectable_change=minimum_detectable_change(error, rule, n),
        pairs=tuple(estimates),
        is_suspected=is_suspected,
    )


def _birge_ratio(values: Sequence[float], weights: Sequence[float], middle: float) -> float:
    """
    Return how many times more the values differ than their weights tell; 1 if it may be chance.

    Processes of some steps differ far more than the assumed spread. Sources: Birge, The Calculation
    of Errors by the Method of Least Squares, Physical Review 40, 1932; for the quantile of chi
    square, Wilson and Hilferty, Proceedings of the National Academy of Sciences 17, 1931.
    """
    degrees = len(values) - 1
    if not degrees:
        return 1.0
    squares = (
        weight * (value - middle) ** 2 for value, weight in zip(values, weights, strict=True)
    )
    found, variance = sum(squares) / degrees, 2 / (9 * degrees)
    by_chance = (1 - variance + _NORMAL.inv_cdf(_CHANCE) * math.sqrt(variance)) ** 3
    return math.sqrt(found) if found > by_chance else 1.0


def _weighted(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the weighted mean, from the first value on, so that equal values give just that."""
    off = [(value - values[0]) * weight for value, weight in zip(values, weights, strict=True)]
    return values[0] + sum(off) / sum(weights)


def _by_single_ratios(
    estimates: Sequence[PairEstimate], rule: StoppingRule, final: bool
) -> Decision:
    """Return the decision that every pair of turns gives by itself."""
    low = min(one.least for one in estimates) / SINGLE_RATIO_BOUND
    high = max(one.greatest for one in estimates) * SINGLE_RATIO_BOUND
    suggested = _verdict(low, high, 1 + rule.effective_tolerance)
    suggested = _confirmed(suggested, len(estimates) >= LEAST_PAIRS, final)
    is_suspected = suggested is Verdict.REGRESSION and len(estimates) < LEAST_PAIRS
    decided = suggested is not None and not is_suspected
    logs, turns = [math.log(one.ratio) for one in estimates], [float(one.n) for one in estimates]
    return Decision(
        verdict=suggested if suggested is not None and decided else Verdict.INCONCLUSIVE,
        ratio=math.exp(_weighted(logs, turns)),
        low=None,
        high=None,
        confidence=0.0,
        tolerance=rule.effective_tolerance,
        requested_tolerance=rule.tolerance,
        resolvable_tolerance=rule.resolvable_tolerance,
        minimum_detectable_change=None,
        pairs=tuple(estimates),
        by_single_ratios=decided,
        is_suspected=is_suspected,
    )


def _verdict(low: float, high: float, bound: float) -> Verdict | None:
    if high < bound:
        return Verdict.IMPROVED if high < 1 else Verdict.PASS
    return Verdict.REGRESSION if low > bound else None


def _confirmed(suggested: Verdict | None, are_faster: bool, final: bool) -> Verdict | None:
    """
    Return the verdict, if it is not an improvement that too few process pairs show.

    Such an improvement is left open, and a PASS where there will be no more process pairs.
    """
    if suggested is not Verdict.IMPROVED or are_faster:
        return suggested
    return Verdict.PASS if final else None
