from helpers.tables import cells

from pytest_tfperf.compiler.grappler import DEFAULT_OFF, DEFAULT_ON, TOGGLES
from pytest_tfperf.metrics.graph_ops import OPTIMIZERS, optimizer_table


def test_only_what_made_a_difference_is_listed_the_largest_first():
    without = {
        "": 10,
        "constant_folding": 12,
        "remapping": 10,
        "arithmetic_optimization": 30,
        "auto_mixed_precision": 7,
    }
    table = optimizer_table(without)
    assert table.title == "Grappler's optimisers, offline: 10 ops with all"
    assert table.rows == (
        ("arithmetic", "arithmetic_optimization", 30, 20),
        ("constant folding", "constant_folding", 12, 2),
        ("auto mixed precision", "auto_mixed_precision", 7, -3),
    )


def test_equal_differences_stand_in_the_order_of_their_options():
    table = optimizer_table({"": 1, "remapping": 2, "constant_folding": 2})
    assert cells(table, "option") == ["constant_folding", "remapping"]


def test_without_a_difference_there_is_no_row():
    for without in [{}, {"": 5}, {"": 5, "remapping": 5}]:
        assert optimizer_table(without).rows == (), without


def test_every_optimiser_that_is_left_out_has_a_name_and_every_name_is_an_option():
    assert {*DEFAULT_ON, *DEFAULT_OFF} <= set(OPTIMIZERS) <= set(TOGGLES)
