"""Steps that differ: a limit on FLOPs holds the largest, also where others are more common."""

import itertools

import tensorflow as tf

from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.checks.limits import check_limits

X = tf.ones((32, 32))
SMALL, LARGE = 2 * 32**3, 2 * 32**3 * 10


@tf.function
def small(x):
    return x @ x


@tf.function
def large(x):
    for _ in range(10):
        x = x @ x
    return x


def every_fourth():
    turns = itertools.count()
    return lambda x: large(x) if next(turns) % 4 == 3 else small(x)


def bounds(value):
    return value.low(), value.number, value.high()


def test_each_fourth_step_accumulates_more(profile):
    found = profile(every_fourth(), [X] * 60, trace_steps=8)
    assert bounds(found.value("flops")) == (SMALL, SMALL, LARGE)
    assert not [note for note in found.notes if "flops" in note and "describe" in note]


def test_a_limit_is_held_by_the_largest_step_and_kept_at_equality(profile):
    found = profile(every_fourth(), [X] * 60, trace_steps=8)
    for most, verdict in ((LARGE, "PASS"), (LARGE - 1, "FAIL"), (SMALL, "FAIL")):
        [check] = check_limits(found, Wanted.read({"max_flops": most}).limits, None, False)
        assert check.verdict.value == verdict, most


def test_shapes_of_a_generator_that_change(profile):
    sizes = [8, 16, 8, 8]
    data = [tf.ones((size, 32)) for size in itertools.islice(itertools.cycle(sizes), 60)]
    step = tf.function(lambda x: x @ tf.transpose(x), reduce_retracing=True)
    found = profile(step, data, trace_steps=8).value("flops")
    assert bounds(found) == (2 * 8 * 8 * 32, 2 * 8 * 8 * 32, 2 * 16 * 16 * 32)


def test_steps_that_call_nothing_are_the_least(profile):
    turns = itertools.count()
    found = profile(lambda x: small(x) if next(turns) % 4 else None, [X] * 60, trace_steps=8)
    assert bounds(found.value("flops")) == (0, SMALL, SMALL)


def test_a_kind_of_step_that_cannot_be_lowered_leaves_the_flops_unknown(profile):
    turns = itertools.count()
    python = tf.function(lambda x: tf.py_function(lambda a: a, [x], tf.float32))
    found = profile(
        lambda x: python(x) if next(turns) % 4 == 3 else small(x), [X] * 60, trace_steps=8
    )
    value = found.value("flops")
    assert value.number is None
    assert "traced steps call other functions: " in value.why
    assert "EagerPyFunc" in value.why
