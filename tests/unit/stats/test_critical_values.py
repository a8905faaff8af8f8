"""Critical values of group sequential tests: published ones, and the error by simulation."""

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
from helpers.binomial import binomial_quantile
from helpers.refusals import refusal

from pytest_tfperf.stats.sequential import critical_values


def test_quantiles_of_the_binomial_distribution_by_hand():
    """Of 1,024 series of ten coins 1 has no head, 11 at most one, 638 at most five, 1,013 at most eight."""
    for share, heads in [(0.0009, 0), (0.001, 1), (0.5, 5), (0.98, 8), (0.999, 9), (1.0, 10)]:
        assert binomial_quantile(share, 10, 0.5) == heads, share


def test_one_analysis_has_the_quantile_of_the_normal_distribution():
    for error in [0.05, 0.005, 1e-4]:
        quantile = -NormalDist().inv_cdf(error)
        assert critical_values((error,)) == pytest.approx((quantile,), abs=1e-3), error
        assert critical_values((0.0, error))[0] == math.inf, error


def test_pocock_s_constants():
    """Jennison and Turnbull, Group Sequential Methods, 2000, table 2.1 (two-sided 5 %)."""
    for n, published in [(2, 2.178), (3, 2.289), (4, 2.361), (5, 2.413), (10, 2.555)]:
        random = np.random.default_rng(0)
        sums = random.standard_normal((100_000, n)).cumsum(axis=1)
        beyond = sums > published * np.sqrt(np.arange(1, n + 1))
        first = np.bincount(beyond.argmax(axis=1)[beyond.any(axis=1)], minlength=n) / len(sums)
        assert critical_values(tuple(first)) == pytest.approx((published,) * n, abs=0.05), n
        assert first.sum() == pytest.approx(0.025, abs=0.002), n


@pytest.mark.parametrize("draws", [50_000, pytest.param(1_000_000, marks=pytest.mark.nightly)])
def test_each_analysis_spends_its_error(draws):
    """Each of so many series without an effect ends at the first analysis that is beyond its value."""
    for errors in [(0.01,) * 4, (0.0, 0.005, 0.01, 0.02), (0.02, 0.01, 0.005), (0.002,) * 8]:
        random, n = np.random.default_rng(1), len(errors)
        means = random.standard_normal((draws, n)).cumsum(axis=1) / np.sqrt(np.arange(1, n + 1))
        going_on = np.ones(draws, bool)
        for at, (value, error) in enumerate(zip(critical_values(errors), errors, strict=True)):
            stops = going_on & (means[:, at] > value)
            if error:
                low, high = (binomial_quantile(one, draws, error) for one in (1e-5, 1 - 1e-5))
                assert low - 1e-4 * draws <= stops.sum() <= high + 1e-4 * draws, (errors, at)
            else:
                assert not stops.any(), (errors, at)
            going_on &= ~stops


def test_values_are_below_those_of_errors_that_are_split_without_their_correlation():
    values = critical_values((0.001,) * 6)
    split = -NormalDist().inv_cdf(0.001)
    assert values[0] == pytest.approx(split, abs=1e-3)
    assert all(later < earlier for earlier, later in itertools.pairwise(values))


def test_an_invalid_error_is_refused():
    for wrong in [(), (-0.1,), (0.5,), (0.1, math.nan)]:
        assert "from 0 to below" in refusal(ValueError, critical_values, wrong), wrong
