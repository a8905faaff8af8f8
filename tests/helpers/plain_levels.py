"""Plain forms of the tests of changes of level: every order is drawn, and every sum computed anew."""

import math

import numpy as np

from pytest_tfperf.stats.change_points import number_of_orders


def between(values, first, end):
    """Sum of squares between a segment and what is outside it, from their means."""
    inside, outside = values[first:end], [*values[:first], *values[end:]]
    share = len(inside) * len(outside) / len(values)
    return share * (sum(inside) / len(inside) - sum(outside) / len(outside)) ** 2


def best_by_all_orders(values, segments, level):
    """The best segment and its p-value; all orders of `best_segment` are drawn, whatever the level."""
    place = np.arange(len(values))
    inside = (segments.first[:, None] <= place) & (place < segments.end[:, None])
    width = inside.sum(axis=1)
    weight = len(values) / (width * (len(values) - width))
    centred = values - values.mean()
    scores = (inside @ centred) ** 2 * weight
    random, n_alike, n_orders = np.random.default_rng(0), 1, number_of_orders(len(values))
    for _ in range(n_orders - 1):
        order = random.permuted(centred)
        n_alike += bool(((inside @ order) ** 2 * weight).max() >= scores.max() * (1 - 1e-9))
    return int(scores.argmax()), n_alike / n_orders


def change_points_by_all_orders(values):
    """Change points of values by the plain form of the test."""
    from unittest import mock

    from pytest_tfperf.stats import change_points

    with mock.patch.object(change_points, "best_segment", best_by_all_orders):
        return change_points.change_points(values)


def share_alike(values, segments, needed, orders):
    """Share of some orders in which a segment differs from the rest as much as needed."""
    pairs = list(zip(segments.first.tolist(), segments.end.tolist(), strict=True))
    alike = [
        max(between(list(order), *pair) for pair in pairs) >= needed * (1 - 1e-9)
        for order in orders
    ]
    return math.fsum(alike) / len(alike)
