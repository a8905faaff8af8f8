"""Change points: planted steps, all of the orders of the values, and shares of false alarms."""

import itertools
import math

import numpy as np
import pytest
from helpers.binomial import binomial_quantile
from helpers.plain_levels import change_points_by_all_orders
from helpers.refusals import refusal

from pytest_tfperf.stats.change_points import (
    FEWEST,
    FEWEST_AT_A_LEVEL,
    FEWEST_WITH_STRETCH,
    LEAST_CHANGE,
    LEVEL,
    MOST_BEFORE_NEWEST,
    MOST_NEWEST,
    MOST_VALUES,
    NEWEST_LEVEL,
    STRETCH_LEVEL,
    change_points,
    clipped,
)

ALL = LEVEL + NEWEST_LEVEL


def noise(random, n, spread=0.03):
    return np.exp(spread * random.normal(size=n))


def planted(random, levels, n_each, spread=0.01):
    """Runs at each of the levels, one level behind the other."""
    return [
        float(level * one)
        for level, n in zip(levels, n_each, strict=True)
        for one in noise(random, n, spread)
    ]


def places(values):
    return [change.index for change in change_points(values)]


def test_planted_steps_are_found_at_their_places():
    for levels, n_each in [
        ((10, 11), (6, 5)),
        ((10, 9), (20, 5)),
        ((10, 20), (60, 4)),
        ((10, 13, 9), (8, 8, 8)),
        ((10, 11, 10), (12, 10, 12)),
        ((10, 11, 12.1, 13.3), (20, 25, 15, 40)),
        ((1e-6, 2e-6), (8, 8)),
        ((1e4, 1.1e4), (8, 8)),
    ]:
        for seed in range(2):
            case = (levels, n_each, seed)
            found = change_points(planted(np.random.default_rng(seed), levels, n_each, 0.004))
            expected = list(itertools.accumulate(n_each))[:-1]
            assert [change.index for change in found] == expected, case
            ratios = [after / before for before, after in itertools.pairwise(levels)]
            assert [change.ratio for change in found] == pytest.approx(ratios, rel=0.01), case


def test_levels_are_medians_between_changes():
    values = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 2.0, 2.01, 2.02, 2.03, 2.04]
    (change,) = change_points(values)
    assert (change.index, change.before, change.after) == (6, 1.025, 2.02)
    assert change.ratio == 2.02 / 1.025


def test_values_far_from_the_median_are_moved_to_a_distance_of_their_spread():
    # median 3, median distance from it 1
    values = np.array([1.0, 2.0, 3.0, 4.0, 100.0])
    assert clipped(values, 2.0).tolist() == [1.0, 2.0, 3.0, 4.0, pytest.approx(3 + 2 * 1.4826)]
    assert clipped(np.array([3.0, 3.0, 3.0, 9.0]), 2.0).tolist() == [3.0, 3.0, 3.0, 9.0]


def test_sides_that_do_not_overlap_are_as_likely_as_the_choices_of_one_side():
    # eleven values in order: the least six are first, or last, in 2 of 462 choices
    (change,) = change_points([1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 2.0, 2.01, 2.02, 2.03, 2.04])
    assert change.p == pytest.approx(2 / math.comb(11, 5), abs=0.0007)
    assert change.p <= ALL


def test_a_stretch_needs_more_values_than_a_split():
    def least_p(n):
        """That of the length with the fewest places ÷ choices."""
        lengths = range(FEWEST_AT_A_LEVEL, n - 2 * FEWEST_AT_A_LEVEL + 1)
        return min((n - 5 - length) / math.comb(n, length) for length in lengths)

    assert least_p(FEWEST_WITH_STRETCH) <= STRETCH_LEVEL < least_p(FEWEST_WITH_STRETCH - 1)


def test_a_regression_and_its_repair_are_found_both():
    for n_each in [(7, 7, 7), (12, 10, 12), (40, 4, 40), (30, 10, 5)]:
        for seed in range(2):
            values = planted(np.random.default_rng(seed), (10, 11, 10), n_each, 0.004)
            assert places(values) == [n_each[0], n_each[0] + n_each[1]], (n_each, seed)


def test_fewer_values_than_the_fewest_cannot_show_a_change():
    assert 2 / math.comb(FEWEST, FEWEST // 2) <= ALL < 2 / math.comb(FEWEST - 1, FEWEST // 2)
    values = [1.0, 1.01, 1.02, 1.03, 1.04, 2.0, 2.01, 2.02, 2.03, 2.04]
    assert len(values) == FEWEST - 1
    assert places(values) == []
    assert places([*values, 2.05]) == [5]
    assert places([]) == places([1.0]) == []


@pytest.mark.parametrize(("n_slow", "found"), [(1, []), (2, []), (4, [60])])
def test_one_or_two_slow_runs_are_no_level(n_slow, found):
    values = planted(np.random.default_rng(3), (1, 3), (60, n_slow))
    assert places(values) == found


def test_single_outliers_hide_no_change():
    values = planted(np.random.default_rng(4), (1, 1.1), (30, 30))
    for place in (3, 17, 40, 55):
        values[place] *= 4
    assert [round(place, -1) for place in places(values)] == [30]


def test_equal_values_have_no_change_and_many_equal_ones_may():
    assert places([2.0] * 50) == []
    assert places([2.0] * 30 + [2.1] * 8) == [30]  # half of them or more are at the median


def test_a_change_below_the_least_is_none():
    steady = [1.0, 1.00001, 0.99999] * 10
    assert places(steady + [one * (1 + 1.02 * LEAST_CHANGE) for one in steady]) == [30]
    assert places(steady + [one * (1 + 0.98 * LEAST_CHANGE) for one in steady]) == []


def test_a_change_that_is_too_small_is_left_out_of_the_levels_beside_it():
    steady = [1.0, 1.00001, 0.99999] * 10
    values = [*steady, *(1.002 * one for one in steady), *(1.1 * one for one in steady)]
    (change,) = change_points(values)
    assert (change.index, change.before) == (60, pytest.approx(1.001, abs=0.0011))


def test_the_same_values_have_the_same_change_points():
    values = planted(np.random.default_rng(5), (1, 1.03), (15, 15), 0.02)
    assert change_points(values) == change_points(tuple(values))
    scaled = change_points([4 * value for value in values])
    assert [(one.index, one.p) for one in scaled] == [
        (one.index, one.p) for one in change_points(values)
    ]


def test_a_long_series_is_split_too():
    values = planted(np.random.default_rng(6), (1, 1.05), (1500, 1200), 0.004)
    assert places(values) == [1500]


def test_the_newest_values_of_a_long_series_are_looked_at():
    n_each = (20, MOST_VALUES // 2, MOST_VALUES // 2)
    values = planted(np.random.default_rng(6), (1, 1.5, 1.6), n_each, 0.004)
    assert places(values) == [20 + MOST_VALUES // 2]
    values = planted(np.random.default_rng(6), (1, 1.5, 1.6), (20, 100, MOST_VALUES - 120), 0.004)
    assert places(values) == [20, 120]


def test_values_must_be_finite_and_above_zero():
    for value in [0.0, -1.0, math.inf, math.nan]:
        said = refusal(ValueError, change_points, [1.0] * 20 + [value])
        assert "finite values above zero" in said, value


def test_all_looks_at_a_series_together_err_in_less_than_one_percent():
    assert LEVEL + NEWEST_LEVEL + STRETCH_LEVEL < 0.01


@pytest.mark.parametrize("n_before", [90, MOST_BEFORE_NEWEST + 300])
def test_ten_runs_show_a_change_of_their_spread_and_a_half(n_before):
    steady = [1.03, 0.97, 0.99, 1.01, 1.0] * (n_before // 5)
    newest = [1.5 * 0.02 + one for one in steady[:MOST_NEWEST]]
    assert places([*steady, *newest]) == [n_before]
    assert places([*steady, *newest[:2]]) == []
    assert places([*newest, *steady]) == []  # the oldest are no news


def check_all_orders(n, digits, shifts):
    random = np.random.default_rng(n + digits)
    for shift in shifts:
        values = noise(random, n)
        values[random.integers(3, n - 3) :] *= shift
        values = np.round(values, digits).tolist()
        assert change_points(values) == change_points_by_all_orders(values), (n, digits, shift)


def test_change_points_are_those_of_all_orders():
    for n, digits in [(11, 9), (14, 2), (30, 9)]:
        check_all_orders(n, digits, (1.05, 1.3))


@pytest.mark.nightly
@pytest.mark.parametrize("n", [11, 12, 13, 14, 30, 45])
def test_change_points_of_many_series_are_those_of_all_orders(n):
    for digits in (2, 9):
        check_all_orders(n, digits, (1.0, 1.05, 1.3))


@pytest.mark.nightly
def test_change_points_of_longer_series_are_those_of_all_orders():
    random = np.random.default_rng(1)
    for n in (60, 80):
        for shift in (1.0, 1.02, 1.05):
            values = noise(random, n)
            values[n - 9 :] *= shift
            values[n // 3 : n // 2] *= shift
            values = values.tolist()
            assert change_points(values) == change_points_by_all_orders(values)


@pytest.mark.parametrize(
    ("n", "draws", "most"),
    [
        (30, 100, binomial_quantile(0.99, 100, 0.01)),
        *(pytest.param(n, 500, 5, marks=pytest.mark.nightly) for n in (11, 30, 100)),
    ],
)
def test_steady_noise_has_false_alarms_below_one_percent(n, draws, most):
    random = np.random.default_rng(n)
    assert sum(bool(places(noise(random, n).tolist())) for _ in range(draws)) <= most


@pytest.mark.nightly
@pytest.mark.parametrize(("n_before", "share"), [(30, 0.75), (90, 0.85)])
def test_five_percent_slower_in_noise_of_three_is_mostly_found_after_ten_runs(n_before, share):
    random = np.random.default_rng(7)
    levels, n_each = (1, 1.05), (n_before, 10)
    found = [
        any(abs(place - n_before) <= 10 for place in places(planted(random, levels, n_each, 0.03)))
        for _ in range(200)
    ]
    assert np.mean(found) >= share
