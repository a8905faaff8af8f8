"""Stopping rule of a paired run: how its error is spent over the analyses of process pairs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_tfperf.stats.critical_values import critical_values

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

Processes of the same code differ by up to 12 % where steps write much memory, and two pairs may
agree by chance (benchmarks/keras_commits.py).
"""
ERROR = 0.005
"""
Bound on the chance of a wrong verdict of one test, on either side.

Both sides hold where the true slow-down equals the tolerance.
"""
RUN_ERROR = 0.05
"""Bound on the chance of any wrong REGRESSION of a run; shared equally by its tests."""
SLOWER_POWER = 3
"""
Power of the share of pairs with which the error of a REGRESSION is spent.

Late analyses have most of it (power family; Kim and DeMets, Biometrika 74, 1987). That of a PASS is
spent evenly, since the same code should pass early.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingRule:
    """
    The parameters of the test.

    Raises:
        ValueError: If one of them is below zero or not finite, there is no test, or there are fewer
            than two process pairs.
    """

    tolerance: float
    """Requested tolerance: the slow-down that is allowed, as a share."""
    n_tests: int
    """Number of tests in the run."""
    process_sd: float
    """Standard deviation of the log ratio between process pairs of the same code."""
    n_pairs: int
    """Most process pairs of the test."""

    def __post_init__(self) -> None:
        bounded = 0 <= self.tolerance < math.inf and 0 <= self.process_sd < math.inf
        if not bounded or self.n_tests < 1 or self.n_pairs < LEAST_PAIRS:
            raise ValueError(
                "a stopping rule has a tolerance and a process_sd of zero or more, at least one "
                f"test and {LEAST_PAIRS} process pairs, not {self}"
            )

    @property
    def slower_error(self) -> float:
        """Chance of a REGRESSION of the test where the slow-down equals the tolerance."""
        return min(ERROR, RUN_ERROR / self.n_tests)

    def slower_z(self, n: int, final: bool = False) -> float:
        """
        Return the critical value of a REGRESSION after n process pairs.

        That of one pair only makes it suspected; it is the value of two.

        Args:
            n: Number of process pairs.
            final: Whether there will be no more of them; then all of the error may be spent.
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
        """
        Return how many process pairs must each be slower than the tolerance for a REGRESSION.

        Args:
            low: Lower bound of the common ratio.
        """
        is_clear = low > CLEARLY * (1 + self.effective_tolerance)
        return LEAST_PAIRS if is_clear else min(USUAL_PAIRS, self.n_pairs)

    def least_faster(self, high: float) -> int:
        """
        Return how many process pairs must each be faster for an improvement.

        Args:
            high: Upper bound of the common ratio.
        """
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
