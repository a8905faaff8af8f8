"""Which ops have more FLOPs or another type than a baseline says, wherever their lines are now."""

from pytest_tfperf.differences.profiles import (
    dtype_differences,
    flop_differences,
    op_counts,
)
from pytest_tfperf.values import Column, Table

COLUMNS = tuple(Column(key, key) for key in ("type", "key", "place", "dtype", "ops", "flops"))


def ops(*rows):
    return Table.of("", COLUMNS, rows)


def product(place, flops, key="model.py:block", dtype="float32", n=1):
    return "MatMul", key, place, dtype, n, flops


def cast(place, dtype, n, key="model.py:block"):
    return "Cast", key, place, dtype, n, 0


def changed(find, before, now):
    return [one.line for one in find(op_counts(before), now)]


SMALL, LARGE = product("at model.py:20", 200), product("at model.py:24", 480)
LAYERS = [product(f"in dense_{n}", 100, "dense") for n in range(3)]


def test_the_op_that_grew_is_named_with_its_line_of_today():
    cases = [
        ([SMALL], [LARGE], ["MatMul at model.py:24: 200 → 480 FLOP"]),
        ([SMALL], [SMALL, LARGE], ["MatMul at model.py:24: 0 → 480 FLOP (new)"]),
        ([LARGE], [SMALL], []),
        (
            LAYERS,
            [LAYERS[0], product("in dense_1", 480, "dense"), LAYERS[2]],
            ["MatMul in dense_1: 100 → 480 FLOP"],
        ),
        # the same op twice in a line, and the same ops in another function, which has one more
        ([SMALL], [product("at model.py:20", 400, n=2)], ["MatMul at model.py:20: 200 → 400 FLOP"]),
        (
            [SMALL],
            [product("at new.py:3", 480, "new.py:f")],
            ["MatMul at new.py:3: 200 → 480 FLOP"],
        ),
        ([SMALL], [product("at new.py:3", 200, "new.py:f")], []),
        # a line that was split
        (
            [product("at model.py:20", 400, n=2)],
            [SMALL, product("at model.py:21", 200)],
            [],
        ),
        # next to nothing beside the largest rise
        ([SMALL], [LARGE, ("AddV2", "model.py:block", "at model.py:25", "float32", 1, 9)], 1),
    ]
    for before, now, wanted in cases:
        found = changed(flop_differences, ops(*before), ops(*now))
        assert (len(found) if wanted == 1 else found) == wanted, (before, now)


def test_a_type_that_changed_is_named_with_its_ops():
    wide = product("at model.py:24", 200, dtype="float64")
    half = product("at model.py:20", 200, dtype="bfloat16")
    cases = [
        ([SMALL], [wide], ["MatMul at model.py:24: float32 → float64"]),
        ([half], [SMALL], ["MatMul at model.py:20: bfloat16 → float32"]),
        (
            [SMALL],
            [wide, cast("at model.py:24", "float32", 1), cast("at model.py:24", "float64", 6)],
            [
                "6 Cast to float64 at model.py:24",
                "MatMul at model.py:24: float32 → float64",
                "1 Cast to float32 at model.py:24",
            ],
        ),
        ([SMALL], [SMALL, SMALL], []),
        ([cast("at model.py:2", "float64", 1)], [cast("at model.py:9", "float64", 1)], []),
    ]
    for before, now, wanted in cases:
        assert changed(dtype_differences, ops(*before), ops(*now)) == wanted, (before, now)


def test_unknown_ops_and_edited_files_explain_nothing_untrue():
    cut = Table.of("", COLUMNS, [SMALL, LARGE], limit=1)
    assert op_counts(None) is op_counts(cut) is None
    for before, now in ((None, ops(SMALL)), ({}, None), ({}, cut)):
        assert flop_differences(before, now) == dtype_differences(before, now) == []
    assert flop_differences({"MatMul": 1, "": 2, "MatMul float32 -1 x": 1}, ops(SMALL))
