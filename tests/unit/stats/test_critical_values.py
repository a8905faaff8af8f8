"""Critical values of group sequential tests: published ones, and the error by simulation."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from pytest_tfperf.stats.critical_values import critical_values


@pytest.mark.parametrize("error", [0.05, 0.005, 1e-4])
def test_one_analysis_has_the_quantile_of_the_normal_distribution(error):
    assert critical_values((error,)) == pytest.approx((scipy.stats.norm.isf(error),), abs=1e-3)
    assert critical_values((0.0, error))[0] == math.inf


@pytest.mark.parametrize(
    ("n", "published"), [(2, 2.178), (3, 2.289), (4, 2.361), (5, 2.413), (10, 2.555)]
)
def test_pocock_s_constants(n, published):
    """Jennison and Turnbull, Group Sequential Methods, 2000, table 2.1 (two-sided 5 %)."""
    random = np.random.default_rng(0)
    sums = random.standard_normal((400_000, n)).cumsum(axis=1)
    beyond = sums > published * np.sqrt(np.arange(1, n + 1))
    first = np.bincount(beyond.argmax(axis=1)[beyond.any(axis=1)], minlength=n) / len(sums)
    assert critical_values(tuple(first)) == pytest.approx((published,) * n, abs=0.05)
    assert first.sum() == pytest.approx(0.025, abs=0.002)


@pytest.mark.parametrize(
    "errors", [(0.01,) * 4, (0.0, 0.005, 0.01, 0.02), (0.02, 0.01, 0.005), (0.002,) * 8]
)
def test_each_analysis_spends_its_error(errors):
    random = np.random.default_rng(1)
    n = len(errors)
    means = random.standard_normal((1_000_000, n)).cumsum(axis=1) / np.sqrt(np.arange(1, n + 1))
    going_on = np.ones(len(means), bool)
    for at, (value, error) in enumerate(zip(critical_values(errors), errors, strict=True)):
        stops = going_on & (means[:, at] > value)
        low, high = scipy.stats.binom.ppf([1e-5, 1 - 1e-5], len(means), error) / len(means)
        assert low - 1e-4 <= stops.mean() <= high + 1e-4
        going_on &= ~stops


def test_values_are_below_those_of_errors_that_are_split_without_their_correlation():
    values = critical_values((0.001,) * 6)
    split = scipy.stats.norm.isf(0.001)
    assert values[0] == pytest.approx(split, abs=1e-3)
    assert all(later < earlier for earlier, later in itertools.pairwise(values))


@pytest.mark.parametrize("wrong", [(), (-0.1,), (0.5,), (0.1, math.nan)])
def test_an_invalid_error_is_refused(wrong):
    with pytest.raises(ValueError, match="from 0 to below"):
        critical_values(wrong)
