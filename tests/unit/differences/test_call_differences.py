"""Python functions that are called more or less often, from tables made by hand."""

from pytest_tfperf.differences.structure import (
    MOST_FUNCTIONS,
    call_differences,
    called_functions,
    host_time_grew,
)
from pytest_tfperf.values import Column, Table

COLUMNS = tuple(Column(key, key) for key in ("function", "line", "calls", "self_s"))
WRAPPER = "keras/src/utils/traceback_utils.py:inject_argument_info_in_traceback"


def table(*rows):
    return Table.of("", COLUMNS, rows, limit=MOST_FUNCTIONS)


def found(old, *rows):
    return [one.what for one in call_differences(old, table(*rows))]


def many(calls=3):
    """As many functions as are kept."""
    return {f"f{n}": calls for n in range(MOST_FUNCTIONS)}


def rows_of(calls_by_name):
    return [(name, 1, calls, 0.0) for name, calls in calls_by_name.items()]


def test_added_calls_are_named_with_file_line_and_time():
    rows = [(WRAPPER, 113, 60, 35e-5), ("model.py:step", 4, 1, 1e-3)]
    assert found({WRAPPER: 20, "model.py:step": 1}, *rows) == [
        f"+40 calls of {WRAPPER} a step (20 → 60), line 113, 350 µs in itself while counted"
    ]


def test_new_and_lost_functions_are_told_from_and_to_nothing():
    assert found({"a.py:old": 5}, ("a.py:new", 9, 40, 0.0)) == [
        "+40 calls of a.py:new a step (0 → 40), line 9",
        "−5 calls of a.py:old a step (5 → 0)",
    ]


def test_one_call_is_in_the_singular():
    assert found({"a.py:old": 1}, ("a.py:new", 9, 1, 0.0)) == [
        "+1 call of a.py:new a step (0 → 1), line 9",
        "−1 call of a.py:old a step (1 → 0)",
    ]


def test_functions_whose_added_calls_take_longest_come_first():
    rows = [("a", 1, 1000, 1e-5), ("b", 1, 10, 1e-3), ("c", 1, 20, 1e-3), ("d", 1, 1, 0.0)]
    lines = found({"a": 1, "c": 19, "d": 100}, *rows)
    # b: all of 1 ms; c: a twentieth of it; a: 10 µs; d is called less often
    assert [line.split(" of ")[1][0] for line in lines] == ["b", "c", "a", "d"]


def test_functions_that_are_gone_come_before_those_called_less_often():
    lines = found({"a": 60, "b": 20}, ("a", 1, 20, 1.0))
    assert [line.split(" of ")[1][0] for line in lines] == ["b", "a"]


def test_the_first_five_are_named_and_the_others_counted():
    lines = found({}, *[(f"f{n}", 1, 100 - n, 0.0) for n in range(7)])
    assert lines[4].startswith("+96 calls of f4 ")
    assert lines[5:] == ["2 other Python functions called more or less often"]


def test_equal_calls_and_less_than_half_a_call_are_no_difference():
    assert found({"a": 3, "b": 1.0}, ("a", 1, 3, 1.0), ("b", 1, 1.4, 1.0)) == []


def test_a_function_outside_a_full_list_had_as_many_calls_as_the_last_in_it_or_fewer():
    rows = rows_of(many())
    rows[0] = ("new", 1, 40, 0.0)
    assert found(many(), *rows)[0] == ("+37 or more calls of new a step (3 or fewer → 40), line 1")


def test_a_function_that_left_a_full_table_has_as_many_calls_as_the_last_in_it_or_fewer():
    old = {**many(), "old": 40}
    assert found(old, *rows_of(many())) == ["−37 or more calls of old a step (40 → 3 or fewer)"]


def test_functions_that_only_entered_or_left_full_lists_are_no_difference():
    old, new = {**many(), "left": 3}, {**many(), "entered": 3}
    assert found(old, *rows_of(new)) == []


def test_nothing_is_told_without_both_lists():
    assert list(call_differences(None, table(("a", 1, 1, 1.0)))) == []
    assert list(call_differences({"a": 1}, None)) == []
    assert called_functions(None) is None
    assert called_functions(table(("a", 1, 4, 1.0))) == {"a": 4}


def test_python_s_time_is_the_host_s_share_of_the_step():
    cases = [
        ([(0.5, 0.1)], (0.5, 0.11), True),
        ([(0.5, 0.1)], (0.5, 0.1), False),
        ([(0.5, 0.1)], (0.4, 0.11), False),
        ([(0.9, 0.1), (0.5, 0.1), (0.4, 0.1)], (0.5, 0.11), True),  # the median
        ([], (0.5, 0.1), True),
    ]

    def run(share, seconds):
        return {"host_overhead": share, "step_time": seconds}

    for before, now, grew in cases:
        assert host_time_grew([run(*one) for one in before], run(*now)) is grew, (before, now)


def test_an_unknown_share_does_not_hide_calls():
    assert host_time_grew([{"step_time": 1.0}], {"step_time": 1.0, "host_overhead": 0.5})
    assert host_time_grew([{"step_time": 1.0, "host_overhead": 0.5}], {"step_time": 1.0})
