"""Permutation test of a segment: brute force for the best one, and its chance among all orders."""

import itertools

import numpy as np
import pytest
from helpers.plain_levels import best_by_all_orders, between, share_alike

from pytest_tfperf.stats.change_points import (
    MOST_NUMBERS,
    MOST_ORDERS,
    best_segment,
    number_of_orders,
    splits,
    stretches,
)

LEVEL = 0.005
KINDS = {
    "splits": lambda n: splits(n, 3),
    "splits near the end": lambda n: splits(n, 3, 5),
    "stretches": lambda n: stretches(n, 3),
}


def pairs(segments):
    return list(zip(segments.first.tolist(), segments.end.tolist(), strict=True))


def shifted(random, n, shift):
    place = np.arange(n)
    return 0.03 * random.normal(size=n) + shift * ((place >= n // 3) & (place < n - 3))


def test_splits_have_the_fewest_values_on_both_sides():
    assert pairs(splits(8, 3)) == [(0, 3), (0, 4), (0, 5)]
    assert pairs(splits(20, 3, 5)) == [(0, 15), (0, 16), (0, 17)]
    assert pairs(splits(7, 3, 10)) == pairs(splits(7, 3))


def test_stretches_have_the_fewest_values_before_in_and_behind_them():
    for n in (9, 10, 14):
        assert pairs(stretches(n, 3)) == [
            (first, end)
            for first in range(n)
            for end in range(n)
            if min(first, end - first, n - end) >= 3
        ]


def test_the_best_segment_is_that_of_brute_force():
    for kind, made in KINDS.items():
        for n in (9, 11, 30, 61):
            random, segments = np.random.default_rng(n), made(n)
            for shift in (0.0, 0.05, 0.5):
                values = shifted(random, n, shift)
                best, _ = best_segment(values, segments, LEVEL)
                scores = [between(values.tolist(), *pair) for pair in pairs(segments)]
                assert best == scores.index(max(scores)), (kind, n, shift)


def test_the_chance_of_a_split_is_that_among_all_orders():
    values = np.array([0.1, 0.0, 0.2, 1.1, 1.0, 1.3, 1.2])
    needed = max(between(values.tolist(), *pair) for pair in pairs(splits(7, 3)))
    exact = share_alike(values, splits(7, 3), needed, itertools.permutations(values.tolist()))
    _, p = best_segment(values, splits(7, 3), LEVEL)
    assert p == pytest.approx(exact, abs=0.02)


def check_decisions(n, shift):
    for kind, made in KINDS.items():
        values, segments = shifted(np.random.default_rng(n), n, shift), made(n)
        best, p = best_segment(values, segments, LEVEL)
        all_best, all_p = best_by_all_orders(values, segments, LEVEL)
        assert (best, p <= LEVEL) == (all_best, all_p <= LEVEL), (kind, n, shift)
        assert p == all_p or min(p, all_p) > LEVEL, (kind, n, shift)


def test_the_decision_is_that_of_all_orders():
    for n, shift in [(11, 0.2), (24, 0.05)]:
        check_decisions(n, shift)


@pytest.mark.nightly
@pytest.mark.parametrize("shift", [0.0, 0.03, 0.05, 0.2])
def test_decisions_at_any_shift_are_those_of_all_orders(shift):
    for n in (11, 24, 40):
        check_decisions(n, shift)


def test_values_that_are_the_same_have_no_best_segment():
    for segments in (splits(20, 3), stretches(20, 3)):
        _, p = best_segment(np.zeros(20), segments, LEVEL)
        assert p == 1


def test_a_series_has_as_many_orders_as_their_values_allow():
    most = MOST_NUMBERS // MOST_ORDERS
    assert number_of_orders(11) == number_of_orders(most) == MOST_ORDERS
    assert number_of_orders(2 * most) == MOST_ORDERS // 2
