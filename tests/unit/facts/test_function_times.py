"""Calls of tf.functions counted by hand; the case of "decrement" is that of XProf's own unit test (xplane_to_tf_functions_test.cc)."""

import pytest
from helpers.xspace import MS, event, line, plane, space

from pytest_tfperf.facts.op_times import function_table, function_uses
from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.trace.xspace import decode_trace

NOTHING = {"traced": 0, "notTraced": 0, "eager": 0, "concrete": 0}


def call(name, begin, duration, mode, traces=1):
    return event(name, begin * MS, duration * MS, tf_function_call=mode, tracing_count=traces)


def uses_of(*threads):
    marks = line("marks", event("train", 0, 1000 * MS, step_num=0, _r=1))
    trace = decode_trace(
        space(
            plane(
                "/host:CPU",
                marks,
                *(line(f"python{n}", *events) for n, events in enumerate(threads)),
            )
        )
    )
    steps = find_steps(trace)
    return function_uses(trace, steps), steps


def test_calls_of_several_threads_and_compilers():
    one = [
        call("decrement", 0, 100, "traced-nonXla", 1),
        call("decrement", 150, 20, "notTraced-nonXla", 2),
    ]
    other = [
        call("decrement", 0, 100, "traced-nonXla", 3),
        call("decrement", 150, 20, "notTraced-nonXla", 3),
    ]
    uses, steps = uses_of(
        [*one, call("decrement", 200, 80, "traced-nonXla", 3)],
        [*other, call("decrement", 300, 80, "traced-xla", 4)],
    )
    (use,) = uses
    assert (use.name, use.calls, use.xla, use.traces) == (
        "decrement",
        {**NOTHING, "traced": 4, "notTraced": 2},
        1,
        4,
    )
    assert (use.self_s, use.expensive_s) == (
        pytest.approx(0.4),
        pytest.approx(0.36),
    )  # 90 % of it expensive
    assert function_table(uses, steps).rows == (
        (
            "decrement",
            6.0,
            4.0,
            0.0,
            0.0,
            1.0,
            4,
            pytest.approx(0.4),
            pytest.approx(0.4),
            pytest.approx(0.9),
        ),
    )


def test_a_function_called_by_another_is_subtracted_from_it():
    uses, _ = uses_of([call("outer", 0, 100, "concrete"), call("inner", 20, 40, "eager")])
    assert {use.name: (round(use.self_s, 9), round(use.expensive_s, 9)) for use in uses} == {
        "inner": (0.04, 0.04),
        "outer": (0.06, 0),
    }


def test_calls_outside_of_the_steps_do_not_count():
    uses, _ = uses_of(
        [call("step", 0, 10, "notTraced-nonXla"), call("step", 2000, 10, "traced-nonXla")]
    )
    assert [use.calls for use in uses] == [{**NOTHING, "notTraced": 1}]


def test_a_step_s_marker_of_the_function_s_name_is_no_call():
    """The marker and the call have one name; only the call says that it is one."""
    marks = line(
        "a", event("train", 0, 10 * MS, step_num=0, _r=1), call("train", 1, 5, "notTraced-xla")
    )
    trace = decode_trace(space(plane("/host:CPU", marks)))
    (use,) = function_uses(trace, find_steps(trace))
    assert (use.calls["notTraced"], use.xla, use.self_s) == (1, 1, pytest.approx(0.005))


def test_without_functions_there_is_no_row():
    uses, steps = uses_of([event("MatMul:MatMul", 0, MS)])
    assert (uses, function_table(uses, steps).rows) == ([], ())


def test_a_mode_of_the_future_is_a_call():
    uses, _ = uses_of([call("step", 0, 10, "remembered-xla")])
    assert (uses[0].calls, uses[0].xla) == ({**NOTHING, "concrete": 1}, 1)
