"""Slopes of series counted by hand, and their intervals against Sen's and by simulation."""

import itertools
import math
from statistics import NormalDist, median

import numpy as np
import pytest

from pytest_tfperf.stats.slope import FEWEST, slope_with_interval


def test_a_line_has_its_slope_and_no_width():
    at = [0, 5, 10, 20, 40, 60, 61, 70]
    found = slope_with_interval(at, [3 * each + 7 for each in at], 0.99)
    assert (found.estimate, found.low, found.high) == (3, 3, 3)


def test_a_jump_changes_neither_slope_nor_interval():
    values = [4096 * n + (2**24 if n >= 40 else 0) for n in range(50)]
    found = slope_with_interval(range(50), values, 0.99)
    assert (found.estimate, found.low) == (4096, 4096)
    level = slope_with_interval(range(50), [2**24 * (n >= 5) for n in range(50)], 0.99)
    assert (level.estimate, level.low, level.high) == (0, 0, 0)


def test_fewer_points_than_the_fewest_give_none():
    assert slope_with_interval(range(FEWEST - 1), range(FEWEST - 1), 0.99) is None
    assert slope_with_interval(range(FEWEST), range(FEWEST), 0.99).estimate == 1


def test_as_many_values_as_positions_are_needed():
    with pytest.raises(ValueError, match="9 values at 8 positions"):
        slope_with_interval(range(8), range(9), 0.99)


def test_slope_and_interval_are_sen_s_or_one_rank_wider():
    """Sen, Journal of the American Statistical Association 63, 1968; scipy.stats.theilslopes has the same."""
    for n in (8, 11, 41, 100):
        values = np.random.default_rng(n).normal(size=n) + 0.1 * np.arange(n)
        found = slope_with_interval(range(n), values, 0.95)
        pairs = itertools.combinations(enumerate(values), 2)
        slopes = sorted((b - a) / (j - i) for (i, a), (j, b) in pairs)
        half = NormalDist().inv_cdf(0.975) * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
        low = slopes[max(0, round((len(slopes) - half) / 2) - 1)]
        high = slopes[min(len(slopes) - 1, round((len(slopes) + half) / 2))]
        assert found.estimate == pytest.approx(median(slopes)), n
        assert found.low <= low + 1e-12, n
        assert found.high >= high - 1e-12, n
        assert found.high - found.low < 1.5 * (high - low), n


def test_the_interval_holds_the_slope_as_often_as_it_says():
    random = np.random.default_rng(1)
    series = (random.normal(size=11) * 1000 + 50 * np.arange(11) for _ in range(500))
    found = [slope_with_interval(range(11), one, 0.99) for one in series]
    assert sum(one.low <= 50 <= one.high for one in found) >= 0.98 * 500


def test_a_long_series_is_thinned_and_keeps_its_end():
    values = [0] * 9_900 + [10**9] * 100
    assert slope_with_interval(range(10_000), values, 0.99).estimate == 0
    assert slope_with_interval(range(10_000), range(10_000), 0.99).estimate == 1
