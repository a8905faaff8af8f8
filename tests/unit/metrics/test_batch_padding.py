"""The share of padding, what buckets would leave of it, and how far another sample may be off; counted by hand."""

import json
from itertools import combinations

import numpy as np
import pytest
from helpers.tables import cells
from msgspec import convert

from pytest_tfperf.metrics.batch_padding import (
    _optimal,
    batch_padding,
    bucketed,
    padded_to_longest,
)
from pytest_tfperf.recording import Batches, BatchRows, Recording
from pytest_tfperf.values import Unknown, Value, builtin

LENGTHS = np.array([3, 5, 7, 9, 100, 4, 6, 8])


def component(rows, widths, **others):
    return BatchRows(
        **{"name": "ids", "dtype": "int32", "features": 1, "how": "mask", **others},
        rows=rows,
        widths=widths,
    )


def recorded(*components, n_batches=1, **others):
    batches = Batches(components=components, n_batches=n_batches)
    return Recording(name="", trace=None, workload={}, batches=batches, **others)


def test_buckets():
    cases = [
        ([10], 4, 1 - 142 / 160),  # 3 5 7 9, 4 6 8, 100
        (
            [9],
            4,
            1 - 142 / (28 + 16 + 200),
        ),  # 3 5 7 4, 6 8, 9 100: a boundary belongs to the bucket above
        ([5, 9], 4, 1 - 142 / (2 * 4 + 4 * 8 + 200)),
        ([], 4, 1 - 142 / 436),
        ([1000], 4, 1 - 142 / 436),
        ([10], 100, 1 - 142 / (7 * 9 + 100)),
        ([10], 1, 0.0),
    ]
    for boundaries, size, share in cases:
        assert bucketed(LENGTHS, boundaries, size) == pytest.approx(share), (boundaries, size)


def test_boundaries_are_the_best_of_all_that_leave_each_bucket_enough_rows():
    random = np.random.default_rng(0)
    for draw in (random.integers(1, 30, 60), random.geometric(0.1, 60), np.full(60, 7)):
        found = [*_optimal(draw)]
        assert [len(one) for one in found] == [*range(1, len(found) + 1)]
        for boundaries in found:
            tried = {
                bounds: np.searchsorted(bounds, draw, side="right")
                for bounds in combinations(np.unique(draw)[1:].tolist(), len(boundaries))
            }
            full = [
                padded_to_longest([draw[bucket == one].tolist() for one in range(len(bounds) + 1)])
                for bounds, bucket in tried.items()
                if np.bincount(bucket, minlength=len(bounds) + 1).min() >= 8
            ]
            assert bucketed(draw, boundaries, len(draw)) == pytest.approx(min(full))
            if len(boundaries) == 3:
                break


def test_rows_padded_to_the_longest():
    cases = [([], 0.0), ([[]], 0.0), ([[0, 0]], 0.0), ([[2, 2]], 0.0), ([[1, 3], [4]], 0.2)]
    for rows, share in cases:
        assert padded_to_longest(rows) == pytest.approx(share), rows


def test_the_share_is_that_of_sums_over_batches_and_components():
    one, other = (
        component(((1, 1), (4, 4)), (2, 4)),
        component(((10, 10), (10, 10)), (10, 10), name="mask"),
    )
    value, tables = batch_padding(recorded(one, other, n_batches=2))
    assert value.number == pytest.approx(2 / 52)
    assert cells(tables["batch_padding"], "component") == ["ids", "mask"]
    keys = ("rows", "longest", "real_elements", "elements", "padding")
    assert cells(tables["batch_padding"], *keys)[0] == (4, 4, 10, 12, pytest.approx(2 / 12))
    assert "ids (int32): 10 of 12 elements are real in 2 batches" in value.detail["where"]


def test_what_a_remedy_leaves_is_of_all_components_too():
    title, body = component(((2, 1),), (4,), name="title"), component(((9, 9),), (9,), name="body")
    value, _ = batch_padding(recorded(title, body))
    assert "pad to 2, the longest row seen, not to 4" in value.detail["try"]
    assert (value.number, value.detail["left"]) == (
        pytest.approx(1 - 21 / 26),
        pytest.approx(1 - 21 / 22),
    )


def test_positions_of_several_features_are_lengths_still():
    value, tables = batch_padding(recorded(component(((30, 60),), (120,), features=30)))
    assert cells(tables["batch_padding"], "longest")[0] == 2
    assert "pad to 2, the longest row seen, not to 4" in value.detail["try"]


def test_rows_padded_along_several_axes_have_no_lengths_to_put_in_buckets():
    value, _ = batch_padding(recorded(component(((1, 90),), (100,), features=0)))
    assert value.number == pytest.approx(109 / 200)
    assert "try" not in value.detail


def test_what_no_bucket_makes_better_has_nothing_to_try():
    cases = [(((4, 4),), (4,)), (((99, 100),), (100,)), (((),), (7,)), (((0, 0),), (3,))]
    for rows, widths in cases:
        value, _ = batch_padding(
            recorded(component(rows, widths), component(((1,),), (1,), name="other"))
        )
        assert "bucket" not in value.detail.get("try", ""), rows


def test_alike_batches_do_not_vary_and_others_do_by_four_standard_errors():
    assert (
        batch_padding(recorded(component(((1, 2),) * 3, (2,) * 3), n_batches=3))[0].detail["varies"]
        == 0
    )
    assert (
        batch_padding(recorded(component(((1, 2),), (2,))))[0].detail["varies"] == 0
    )  # of one batch it is not known
    value, _ = batch_padding(recorded(component(((1, 1), (1, 3)), (1, 3)), n_batches=2))
    # padding 0 of 2 and 2 of 6: a share of 1/4, residuals -1/2 and 1/2
    assert value.detail["varies"] == pytest.approx(4 * (2 / 1 * (0.25 + 0.25)) ** 0.5 / 8)


def test_shapes_that_differ_are_named():
    where = batch_padding(recorded(component(((1, 2), (3,)), (2, 3)), n_batches=2))[0].detail[
        "where"
    ]
    assert "2 lengths of rows" in where
    assert "drop_remainder=True" in where


def test_what_is_not_known_says_why():
    cases = [
        (Recording(name="", trace=None, workload={}), "where tf_profile drives the steps"),
        (Recording(name="", trace=None, workload={}, batches=Unknown("mine")), "mine"),
        (recorded(component(((),), (0,))), "no elements"),
        (recorded(n_batches=0), "no elements"),
    ]
    for recording, why in cases:
        value, tables = batch_padding(recording)
        assert value.number is None, (recording, why)
        assert why in value.why, (recording, why)
        assert tables == {}, (recording, why)


def test_a_value_goes_through_json():
    value, _ = batch_padding(
        recorded(component(((3, 5, 7, 9), (100, 4, 6, 8)), (9, 100)), n_batches=2)
    )
    assert value.number == pytest.approx(0.674312, abs=1e-6)
    assert convert(json.loads(json.dumps(builtin(value))), Value) == value
