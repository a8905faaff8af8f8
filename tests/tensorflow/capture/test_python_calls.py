"""Calls of Python functions in real steps, whose own functions are counted by hand."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers.profilers import profiler as new_profiler

DATA = [tf.ones((8, 8))] * 4
HERE = "test_python_calls.py"
needs_one_place = pytest.mark.skipif(
    hasattr(sys, "monitoring"), reason="from Python 3.12 on each tool has a place of its own"
)


def own(profile):
    """The calls of functions in this file, without what they stand in."""
    rows = profile.tables["python_calls"].records()
    return {
        row["function"].rpartition(".")[2].rpartition(":")[2]: row["calls"]
        for row in rows
        if row["function"].startswith(HERE)
    }


def leaf(x):
    return x + 1


def step(x):
    for _ in range(5):
        x = leaf(x)
    return x


def test_user_s_and_library_s_functions_are_counted_and_the_plugin_s_are_not(profile):
    made = profile(step, DATA)
    assert made.python_calls == sum(row["calls"] for row in made.tables["python_calls"].records())
    assert own(made) == {"step": 1, "leaf": 5}
    functions = [row["function"] for row in made.tables["python_calls"].records()]
    assert any(name.startswith("tensorflow/python/") for name in functions)
    assert not any("pytest_tfperf" in name or name.startswith("capture/") for name in functions)
    assert not any(name.startswith("contextlib.py") for name in functions)


def test_a_function_of_python_alone_calls_itself_only(profile):
    def plain():
        return tf_free()

    def tf_free():
        return 1

    assert profile(plain, None).python_calls == 2


def test_the_user_s_own_loop_counts_what_it_calls(profile):
    for batch in profile.steps(DATA):
        leaf(leaf(batch))
    assert own(profile.profile) == {"leaf": 2}


def test_steps_that_differ_are_unknown_with_their_range(profile):
    n_calls = [0]

    def growing():
        n_calls[0] += 1
        for _ in range(n_calls[0]):
            leaf(0)

    value = profile(growing, None).value("python_calls")
    assert value.number is None
    low, high = (int(number) for number in value.why.split(": ")[1].split(" in ")[0].split(" to "))
    assert high - low == 2
    assert value.why.endswith("in 3 steps")


@pytest.mark.imports("keras")
def test_keras_counts_the_same_batch_by_batch_and_per_batch_of_an_execution(profile):
    rows = np.ones((640, 4), "float32")

    def fit(name, per_execution):
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=per_execution)
        return profile.fit(model, rows, rows[:, :1], batch_size=8, epochs=20, verbose=0, name=name)

    one, four = fit("one", 1), fit("four", 4)
    assert one.python_calls > 100
    # an execution of four batches calls as much as one of one batch
    assert four.python_calls * 4 == pytest.approx(one.python_calls, rel=0.05)
    names = [row["function"] for row in one.tables["python_calls"].records()]
    assert any(name.startswith("keras/src/callbacks/callback_list.py:") for name in names)


def test_data_that_end_before_leave_the_count_unknown(profile):
    batches = iter([tf.ones(3)] * (1 + 3 + 12 + 6 + 1 + 2))
    value = profile(leaf, batches).value("python_calls")
    assert (value.number, value.why) == (
        None,
        "the data ended before the steps in which they are counted",
    )


@pytest.mark.imports("keras")
def test_a_short_keras_loop_keeps_no_steps_for_it(profile):
    rows = np.ones((80, 4), "float32")
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    value = profile.fit(model, rows, rows[:, :1], batch_size=16, epochs=1, verbose=0).value(
        "python_calls"
    )
    assert value.number is None
    assert "no steps left in which to count them" in value.why


def test_slow_steps_are_counted_only_for_who_asks():
    def measured(**settings):
        wanted = {"warmup": 1, "steps": 2, "trace_steps": 2, **settings}
        profiler = new_profiler(wanted, max_seconds=0.1)
        try:
            return profiler(slow, DATA).value("python_calls")
        finally:
            profiler.close()

    assert "no limit, report or baseline asks for it" in measured().why
    assert measured(max_python_calls=10**6).number is not None


def slow(x):
    return tf.reduce_sum(tf.py_function(lambda y: sum(range(500_000)), [x], tf.int64))


@needs_one_place
def test_a_profiler_of_the_user_stays_and_makes_the_count_unknown(profile):
    def watch(frame, event, argument):
        pass

    sys.setprofile(watch)
    try:
        value = profile(step, DATA).value("python_calls")
        assert sys.getprofile() is watch
    finally:
        sys.setprofile(None)
    assert "watch) is set already" in value.why


def test_a_step_that_fails_while_it_is_counted_leaves_no_profiler(profile):
    n_calls = [0]

    def failing(x):
        n_calls[0] += 1
        if n_calls[0] == 1 + 3 + 12 + 6 + 1 + 2:
            raise RuntimeError("the 25th step")
        return leaf(x)

    with pytest.raises(RuntimeError, match="the 25th step"):
        profile(failing, DATA)
    assert sys.getprofile() is None
