"""The bound on the share of orders with a large sum, against all orders of a few values."""

import itertools
import math

import numpy as np
import pytest

from pytest_tfperf.stats import permutation_bound
from pytest_tfperf.stats.permutation_bound import most_alike_segments, most_alike_splits


@pytest.fixture(autouse=True)
def _near_ones_too(monkeypatch):
    monkeypatch.setattr(permutation_bound, "_LEAST_DISTANCE", 0.0)


def few_values(seed):
    values = np.round(np.random.default_rng(seed).normal(size=7) ** 3, 3)
    return values - values.mean()


def sums_between(values, widths):
    """Sums of squares between the first values and the rest, of all orders and widths."""
    orders = np.array(list(itertools.permutations(values)))
    n, widths = len(values), np.array(widths)
    return np.cumsum(orders, axis=1)[:, widths - 1] ** 2 * n / (widths * (n - widths))


def test_no_share_of_orders_with_a_split_is_above_the_bound():
    for seed in range(2):
        for least, most in [(2, 5), (1, 3), (4, 6), (3, 3)]:
            values = few_values(seed)
            peaks = sums_between(values, range(least, most + 1)).max(axis=1)
            for share in (0.5, 0.9, 0.99, 1.0):
                needed = float(np.quantile(peaks, share))
                exact = float(np.mean(peaks >= needed * (1 - 1e-9)))
                bound = most_alike_splits(values, needed, least, most)
                assert exact * (1 - 1e-9) <= bound <= 1, (seed, least, most, share)


def test_no_share_of_orders_with_a_segment_is_above_the_bound():
    for seed in range(2):
        values = few_values(seed)
        of_one = sums_between(values, [2])[:, 0]
        for share in (0.5, 0.99, 1.0):
            needed = float(np.quantile(of_one, share))
            exact = float(np.mean(of_one >= needed * (1 - 1e-9)))
            once = most_alike_segments(values, needed, [2], [1])
            assert exact * (1 - 1e-9) <= once <= 1, (seed, share)
            # a union of three is bounded by the sum
            assert most_alike_segments(values, needed, [2], [3]) == pytest.approx(
                min(3 * once, 1)
            ), (seed, share)


@pytest.mark.parametrize("n", [100, 1000])
def test_the_bound_of_one_choice_is_near_the_tail_of_normal_values(n):
    values = np.random.default_rng(n).normal(size=n)
    values -= values.mean()
    for z in (5, 7):
        needed = z * z * float(np.mean(values**2))
        bound = most_alike_segments(values, needed, [n // 2], [1])
        assert math.erfc(z / math.sqrt(2)) / 100 < bound < 500 * math.erfc(z / math.sqrt(2))


def test_a_difference_far_beyond_all_orders_has_a_bound_of_zero():
    assert most_alike_splits(few_values(0), 1e9, 2, 5) == 0


def test_small_differences_are_not_bounded(monkeypatch):
    monkeypatch.undo()
    values = few_values(0)
    assert most_alike_splits(values, 20 * float(np.mean(values**2)), 2, 5) == 1
