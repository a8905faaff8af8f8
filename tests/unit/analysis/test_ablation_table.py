from helpers.tables import cells

from pytest_tfperf.compiler.grappler_ablation import DEFAULT_OFF, DEFAULT_ON
from pytest_tfperf.compiler.grappler_options import TOGGLES
from pytest_tfperf.metrics.graph_ops import OPTIMIZERS, optimizer_table, surviving_table
from pytest_tfperf.recorded_graphs import GraphOp, GrapplerPasses


def passes(without=None, leftovers=()):
    return GrapplerPasses(without=without or {}, leftovers=leftovers)


def test_only_what_made_a_difference_is_listed_the_largest_first():
    without = {
        "": 10,
        "constant_folding": 12,
        "remapping": 10,
        "arithmetic_optimization": 30,
        "auto_mixed_precision": 7,
    }
    table = optimizer_table(passes(without))
    assert table.title == "Grappler's optimisers, offline: 10 ops with all"
    assert table.rows == (
        ("arithmetic", "arithmetic_optimization", 30, 20),
        ("constant folding", "constant_folding", 12, 2),
        ("auto mixed precision", "auto_mixed_precision", 7, -3),
    )


def test_equal_differences_stand_in_the_order_of_their_options():
    table = optimizer_table(passes({"": 1, "remapping": 2, "constant_folding": 2}))
    assert cells(table, "option") == ["constant_folding", "remapping"]


def test_without_a_difference_there_is_no_row():
    for without in [{}, {"": 5}, {"": 5, "remapping": 5}]:
        assert optimizer_table(passes(without)).rows == (), without


def test_every_optimiser_that_is_left_out_has_a_name_and_every_name_is_an_option():
    assert {*DEFAULT_ON, *DEFAULT_OFF} <= set(OPTIMIZERS) <= set(TOGGLES)


def test_survivors_of_one_type_line_and_reason_are_one_row_with_the_first_name():
    def product(name, line="model.py:3"):
        return GraphOp(name=name, op_type="MatMul", line=line, why="constant")

    check = GraphOp(name="check", op_type="CheckNumerics", line=None, why="debugging")
    table = surviving_table(
        passes(
            leftovers=(check, product("a"), product("b"), product("c", "model.py:4"), product("d"))
        )
    )
    assert table.rows == (
        ("MatMul", 3, "model.py:3", "constant", "a"),
        ("CheckNumerics", 1, None, "debugging", "check"),
        ("MatMul", 1, "model.py:4", "constant", "c"),
    )


def test_no_survivors_no_rows():
    assert surviving_table(passes()).rows == ()
