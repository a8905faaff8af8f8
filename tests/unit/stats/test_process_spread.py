"""The spread between process pairs: hand counts, the boundaries between sources, and its error rates by simulation."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from helpers.binomial import binomial_quantile

from pytest_tfperf.results import Verdict
from pytest_tfperf.stats.process_spread import (
    MOST_VARIANCES,
    PINNED_PROCESS_SD,
    PRIOR_DEGREES,
    ProcessSpread,
    Residuals,
    constant_spread,
    for_other_tests,
    process_spread,
    residuals,
)
from pytest_tfperf.stats.sequential import PairEstimate, StoppingRule, decide

CONSTANT = constant_spread(pinned=True)


def pair(log, error=0.0):
    ratio = math.exp(log)
    return PairEstimate(ratio=ratio, error=error, least=ratio, greatest=ratio, n=8)


def spread(stored, *tests):
    return process_spread(CONSTANT, stored, tests)


def test_residuals_by_hand():
    # 1, 2 and 6 % have the mean 3 %: squares 4, 1 and 9; two degrees, of which errors of 1 % explain 2
    errors = [pair(0.01, 0.01), pair(0.02, 0.01), pair(0.06, 0.01)]
    found = residuals(errors, ProcessSpread(sd=0.01, source=""))
    # errors as large as the spread double the variance, so a quarter of each counts
    assert (found.total, found.degrees) == (pytest.approx(12e-4 / 4), 2 / 4)
    assert residuals([pair(0.5)], CONSTANT) == Residuals(total=0, degrees=0)
    assert residuals([pair(0.5, None), pair(0.1)], CONSTANT).degrees == 0
    assert residuals([], CONSTANT) == Residuals()


def test_turns_without_an_error_count_whole():
    found = residuals([pair(0.001), pair(0.002), pair(0.006)], CONSTANT)
    assert (found.total, found.degrees) == (pytest.approx(14e-6), 2)


def test_a_test_whose_processes_differ_far_more_counts_less_for_others():
    for off, counted in [(3.29, 3.29), (3.291, 3.291), (3.3, 3.291), (99, 3.291)]:
        found = residuals([pair(off * CONSTANT.sd)], CONSTANT, ratio=1.0)
        assert found.total == pytest.approx((off * CONSTANT.sd) ** 2), off
        shared = for_other_tests(found, CONSTANT)
        assert shared.total == pytest.approx((counted * CONSTANT.sd) ** 2, rel=1e-4), off
        assert shared.degrees == found.degrees, off
    # the 0.999 quantile of chi square with one degree of freedom
    assert pytest.approx(NormalDist().inv_cdf(0.9995) ** 2, rel=1e-3) == MOST_VARIANCES


def test_the_residual_of_the_same_code_needs_no_second_pair():
    found = residuals([pair(0.003)], CONSTANT, ratio=1.0)
    assert (found.total, found.degrees) == (pytest.approx(9e-6), 1)


def test_tests_with_noisy_turns_do_not_hide_what_others_show():
    """Processes differ as usual; of 40 tests with two pairs each, every second one has errors of 15 %."""
    random, found, unweighted = np.random.default_rng(3), [], []
    for _ in range(200):
        tests = [
            [pair(random.normal(0, math.hypot(PINNED_PROCESS_SD, error)), error) for _ in range(2)]
            for error in [0.002, 0.15] * 20
        ]
        total = sum((residuals(pairs, CONSTANT) for pairs in tests), Residuals())
        found.append(total.total / total.degrees)
        unweighted.append(
            np.mean([(math.log(a.ratio / b.ratio)) ** 2 / 2 - a.error**2 for a, b in tests])
        )
    assert np.mean(found) == pytest.approx(PINNED_PROCESS_SD**2, rel=0.05)
    assert np.percentile(found, 1) > (PINNED_PROCESS_SD / 2) ** 2
    assert np.mean(np.array(unweighted) < 0) > 0.3


def test_the_source_with_the_most_to_show():
    for stored, run, sd, source in [
        (0, 0, 0.0045, "the constant for pinned processes"),
        (19, 3, 0.0045, "the constant for pinned processes"),
        (20, 3, 0.02, "earlier runs on this machine"),
        (0, 4, None, "this run, with the constant for pinned processes before it"),
        (20, 4, None, "this run, with earlier runs on this machine before it"),
    ]:
        found = spread(
            Residuals(total=stored * 0.02**2, degrees=stored),
            Residuals(total=run * 0.03**2, degrees=run),
        )
        before = 0.02 if stored >= 20 else 0.0045
        weighted = math.sqrt((PRIOR_DEGREES * before**2 + run * 0.03**2) / (PRIOR_DEGREES + run))
        assert found.source == source, (stored, run)
        assert found.sd == pytest.approx(weighted if sd is None else sd), (stored, run)


def test_tests_of_a_run_count_together():
    one = Residuals(total=0.001, degrees=2)
    assert spread(Residuals(), one, one) == spread(Residuals(), Residuals(total=0.002, degrees=4))
    assert spread(Residuals(), one).sd == PINNED_PROCESS_SD


@pytest.mark.parametrize("total", [0.0, -1.0])
def test_the_floor_is_half_of_the_constant(total):
    assert spread(Residuals(total=total, degrees=1000)).sd == PINNED_PROCESS_SD / 2
    assert spread(Residuals(), Residuals(total=total, degrees=1000)).sd == pytest.approx(
        PINNED_PROCESS_SD / 2, rel=0.01
    )


@pytest.mark.parametrize(
    ("true_sd", "draws"),
    [
        (0.009, 100),
        *(pytest.param(sd, 400, marks=pytest.mark.nightly) for sd in (0.003, 0.0045, 0.009)),
    ],
)
def test_the_error_rate_holds_for_any_difference_between_processes(true_sd, draws):
    """With 60 stored degrees, and a spread from the test itself from five pairs on."""
    random, wrong = np.random.default_rng(5), 0
    stored = Residuals(total=float(np.sum(random.normal(0, true_sd, 60) ** 2)), degrees=60)
    for _ in range(draws):
        pairs = []
        for n in range(1, 9):
            pairs.append(pair(math.log(1.05) + random.normal(0, true_sd), 1e-4))
            rule = StoppingRule(
                tolerance=0.05,
                n_tests=1,
                process_sd=spread(stored, residuals(pairs, CONSTANT)).sd,
                n_pairs=8,
            )
            verdict = decide(pairs, rule, final=n == 8).verdict
            if verdict is not Verdict.INCONCLUSIVE:
                break
        wrong += verdict is Verdict.REGRESSION
    assert wrong <= binomial_quantile(0.999, draws, 0.01)
