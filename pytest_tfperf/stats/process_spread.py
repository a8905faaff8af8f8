"""
Spread between process pairs: how much two processes of the same code differ, whatever their turns.

Few process pairs give a poor estimate of it. So those of a run are combined with what was known
before, each weighted by its degrees of freedom (moderated variance; Smyth, Linear Models and
Empirical Bayes Methods, Statistical Applications in Genetics and Molecular Biology 3, 2004).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pytest_tfperf.stats.sequential import PairEstimate

PINNED_PROCESS_SD = 0.0045
"""
Standard deviation of the log ratio between process pairs pinned to the same cores.

Source: benchmarks/paired.py, with one core each, on a virtual machine with two. Not yet measured
with more cores, or a GPU.
"""
UNPINNED_PROCESS_SD = 0.027
"""The same where processes cannot be pinned. Source: benchmarks/paired.py."""
BUSY_PROCESS_SD = 0.017
"""
The same beside other processes, which take the caches of one side for as long as it lives.

Source: benchmarks/paired.py with benchmarks/data/turns_beside_others.jsonl.gz. It is 0 to 1.2 % for
a small product of matrices, and 1.4 to 1.7 % for convolutions, by the clock and by processor time.
"""
ENOUGH_IN_RUN = 4
"""Degrees of freedom of a run that count: five process pairs of one test."""
ENOUGH_STORED = 20
"""Degrees of freedom of earlier runs that replace the constant, and are then within 30 %."""
PRIOR_DEGREES = 8.0
"""
Degrees of freedom that what was known before counts as.

A spread from a few pairs alone would be too small by chance in half of the runs.
"""
MOST_VARIANCES = 10.83
"""
Variance of a test that still counts for others, as a multiple of the constant's.

It is the 99.9 % quantile of chi square with one degree of freedom: what one difference in a
thousand exceeds by chance. Processes of steps that write much memory differ by ten times more.
"""
FLOOR = 0.5
"""Least share of the constant: pairs that happen to agree do not show a quieter machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals:
    """Squared differences between process pairs of the same test, on the log scale."""

    total: float = 0.0
    """Sum of squares about each test's mean, less what the error of the turns explains."""
    degrees: float = 0.0
    """Degrees of freedom: process pairs less tests, where turns have no error; else fewer."""

    def __add__(self, other: Residuals) -> Residuals:
        return Residuals(total=self.total + other.total, degrees=self.degrees + other.degrees)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpread:
    """The spread that a decision assumes."""

    sd: float
    """Standard deviation of the log ratio between process pairs of the same code."""
    source: str
    """Where it is from, for messages."""


def constant_spread(pinned: bool) -> ProcessSpread:
    """Return the spread that benchmarks have shown."""
    if pinned:
        return ProcessSpread(sd=PINNED_PROCESS_SD, source="the constant for pinned processes")
    return ProcessSpread(sd=UNPINNED_PROCESS_SD, source="the constant for unpinned processes")


def busy_spread(constant: ProcessSpread) -> ProcessSpread:
    """Return the spread beside other processes, where it is `constant` without them."""
    sd = max(constant.sd, BUSY_PROCESS_SD)
    return ProcessSpread(sd=sd, source="the constant for busy machines")


def residuals(
    pairs: Sequence[PairEstimate], constant: ProcessSpread, ratio: float | None = None
) -> Residuals:
    """
    Return the residuals of the process pairs of one test; pairs without an error do not count.

    They are weighted by the inverse of their variance, relative to turns without an error: the
    variance of a squared normal deviate is twice the square of its mean. So a test with noisy turns
    does not hide what others show. `ratio` is the true one where known, as that of the same code.
    """
    known = [(math.log(pair.ratio), pair.error) for pair in pairs if pair.error is not None]
    if not known:
        return Residuals()
    logs = [log for log, _ in known]
    middle = sum(logs) / len(logs) if ratio is None else math.log(ratio)
    degrees = len(logs) - (ratio is None)
    explained = sum(error**2 for _, error in known) / len(logs)
    squares = sum((log - middle) ** 2 for log in logs)
    weight = (constant.sd**2 / (constant.sd**2 + explained)) ** 2
    return Residuals(total=weight * (squares - explained * degrees), degrees=weight * degrees)


def for_other_tests(found: Residuals, constant: ProcessSpread) -> Residuals:
    """Return the residuals of a test as they count for others, bounded by `MOST_VARIANCES`."""
    most = MOST_VARIANCES * constant.sd**2 * found.degrees
    return replace(found, total=min(found.total, most))


def process_spread(
    constant: ProcessSpread, stored: Residuals, tests: Iterable[Residuals]
) -> ProcessSpread:
    """
    Return the spread that a decision assumes: the constant, or what residuals of earlier runs on
    this machine class and of this run's tests make of it.
    """
    floor = (FLOOR * constant.sd) ** 2
    known, variance = constant, constant.sd**2
    if stored.degrees >= ENOUGH_STORED:
        variance = max(floor, stored.total / stored.degrees)
        known = ProcessSpread(sd=math.sqrt(variance), source="earlier runs on this machine")
    here = sum(tests, Residuals())
    if here.degrees < ENOUGH_IN_RUN:
        return known
    both = (PRIOR_DEGREES * variance + here.total) / (PRIOR_DEGREES + here.degrees)
    return ProcessSpread(
        sd=math.sqrt(max(floor, both)), source=f"this run, with {known.source} before it"
    )
