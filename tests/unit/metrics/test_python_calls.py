"""Calls of Python functions from counts made by hand."""

import pytest

from pytest_tfperf.metrics.calls import analyse_python_calls as analyse
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.recording import ALL, Asked, PythonCalls, PythonFunction, Recording
from pytest_tfperf.values import COUNTED_BY, Source, Unknown


def function(name, calls, self_s=1e-4, place=""):
    return PythonFunction(name=name, line=7, calls=calls, self_s=self_s, place=place)


def recording(calls, **fields):
    return Recording(name="", trace=None, workload={}, python_calls=calls, **fields)


LAYER = function("model.py:layer", 7)


def counted(*steps, functions=(LAYER,)):
    return recording(PythonCalls(steps=steps, functions=functions))


def found(recorded, asked=ALL):
    findings = analyse(Evidence(recorded, asked=asked))
    return findings.values["python_calls"], findings.tables.get("python_calls")


def test_equal_steps_give_an_exact_count_and_name_the_functions_called_most():
    functions = tuple(
        function(name, calls) for name, calls in zip("abcd", (5, 4, 2, 1), strict=True)
    )
    value, table = found(counted((12, 1), (12, 1), (12, 1), functions=functions))
    assert (value.number, value.unit, value.source) == (12, "count", Source.COUNTED)
    assert value.low() == value.high() == 12
    assert value.detail["n_steps"] == 3
    assert value.detail["where"].endswith("called most: a ×5, b ×4, c ×2, and 1 more")
    assert table.records()[0] == {"function": "a", "line": 7, "calls": 5, "self_s": 1e-4}


def test_calls_of_libraries_are_summed_by_package_and_those_of_the_project_told_apart():
    own = [function(f"model.py:f{n:02}", 30 - n, place=f"model.py:{n}") for n in range(12)]
    others = {
        "keras/src/layer.py:call": 20,
        "keras/src/ops.py:add": 2,
        "inspect.py:bind": 4,
        "json/encoder.py:encode": 3,
        "<string>:<lambda>": 1,
    }
    functions = (*own, *(function(name, calls) for name, calls in others.items()))
    value, _ = found(counted((324, 1), functions=functions))
    assert value.detail[COUNTED_BY] == {
        **{f"model.py:f{n:02}": 30 - n for n in range(10)},
        "other functions of the project": 20 + 19,
        "keras": 22,
        "Python's library": 8,
    }
    assert sum(value.detail[COUNTED_BY].values()) == 324


def test_a_call_of_several_steps_is_divided_by_them():
    value, _ = found(counted((40, 4), (40, 4), (20, 2)))
    assert value.number == 10


def test_steps_that_differ_are_unknown_with_their_range_and_keep_their_table():
    value, table = found(counted((1200, 1), (1201, 1), (1199, 1)))
    assert value.number is None
    assert value.why == "it differs from step to step: 1,199 to 1,201 in 3 steps"
    assert len(table.rows) == 1


def test_a_step_that_calls_nothing_has_none():
    value, table = found(counted((0, 1), (0, 1), (0, 1), functions=()))
    assert (value.number, value.detail) == (0, {"n_steps": 3})
    assert table.rows == ()


def test_the_reason_why_nothing_was_counted_is_named():
    cases = [
        (recording(Unknown("a profiler is set")), "not counted: a profiler is set"),
        (
            Recording(name="", trace=None, workload={}, ended="the loop was left"),
            "the loop was left",
        ),
        (
            Recording(name="", trace=None, workload={}, bare=True),
            "only steps that tf_profile drives, or a Keras loop, are counted",
        ),
        (
            Recording(name="", trace=None, workload={}),
            "the data ended before the steps in which they are counted",
        ),
    ]
    for recorded, why in cases:
        value, table = found(recorded)
        assert (value.number, value.why, table) == (None, why, None), why


def test_the_table_keeps_two_hundred_functions():
    functions = tuple(function(f"f{n}", 300 - n) for n in range(250))
    _, table = found(counted((1, 1), functions=functions))
    assert (len(table.rows), table.n_more) == (200, 50)


@pytest.mark.parametrize("calls", [Unknown("a profiler is set"), counted((7, 1)).python_calls])
def test_the_rise_that_a_test_allows_stands_in_the_value(calls):
    value, _ = found(recording(calls), Asked(max_python_calls_regression=0.02))
    assert value.detail["max_rise"] == 0.02
