"""Edges between levels: moved to the best place, which brute force finds too."""

import numpy as np
import pytest

from pytest_tfperf.stats.change_points import settled


def test_an_edge_beside_its_place_moves_there():
    values = np.array([1.0, 1.1, 0.9, 1.0, 1.1, 2.0, 2.1, 1.9, 2.0, 2.1])
    for start in (3, 4, 5, 6, 7):
        assert settled(values, [start], 3) == [5]


def test_an_edge_keeps_the_fewest_values_beside_it():
    values = np.array([1.0, 1.0, 5.0, 5.0, 5.0, 5.0, 5.1, 5.0])
    assert settled(values, [4], 3) == [3]


def test_an_outlier_moves_no_edge():
    values = np.array([1.0, 1.1, 0.9, 1.0, 9.0, 1.1, 1.0, 2.0, 2.1, 1.9, 2.0, 2.1])
    assert settled(values, [6], 3) == [7]


def test_an_edge_stays_where_all_places_are_as_good():
    assert settled(np.ones(12), [6], 3) == [6]
    assert settled(np.array([1.0, 1.1] * 3 + [1.0, 1.1] * 3), [6], 3) == [6]


def test_edges_with_most_values_the_same_move_too():
    assert settled(np.array([1.0] * 6 + [2.0] * 7), [4], 3) == [6]


def test_several_edges_move_until_none_does():
    values = np.repeat([1.0, 3.0, 2.0], 10) + 0.01 * np.random.default_rng(0).normal(size=30)
    assert settled(values, [7, 16], 3) == [10, 20]


def test_far_edges_move_in_several_rounds():
    values = np.repeat([1.0, 2.0], 150) + 0.01 * np.random.default_rng(0).normal(size=300)
    assert settled(values, [60], 3) == [150]


def squares(values, place, edge):
    """The squares that are left with the levels beside a place, where they change at an edge."""
    left, right = np.median(values[:place]), np.median(values[place:])
    return ((values - np.where(np.arange(len(values)) < edge, left, right)) ** 2).sum()


def test_a_settled_edge_is_where_the_squares_are_least_in_noise_without_outliers():
    for seed in range(5):
        random = np.random.default_rng(seed)
        values = np.repeat([0.0, 2.0], [25, 15]) + random.uniform(-1, 1, size=40)
        (place,) = settled(values, [24], 3)
        least = min(squares(values, place, edge) for edge in range(3, 38))
        assert squares(values, place, place) == pytest.approx(least), seed
