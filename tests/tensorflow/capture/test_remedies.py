"""Remedies that depend on the program: one that is a tf.function already, products of XLA on a CPU."""

import pytest
import tensorflow as tf

from pytest_tfperf.analysis.xla.step_flops import ON_CPU

X = tf.ones((64, 64))
DATA = tf.data.Dataset.from_tensors(X).repeat()
INTO_FUNCTION = "move the step's Python code into a tf.function"
IN_EACH_CALL = "do more in each call of the tf.function"


def product(x):
    return x @ x


def loops_in_python(function):
    def step(x):
        return [function(x) for _ in range(3)]

    return step


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(
    ("step", "remedy"),
    [
        (lambda function: function, IN_EACH_CALL),
        (loops_in_python, INTO_FUNCTION),
        (lambda function: lambda x: function(x + 1), INTO_FUNCTION),
    ],
    ids=["one call", "three calls", "an eager op"],
)
def test_a_step_that_is_one_function_is_not_told_to_become_one(profile, step, remedy, jit):
    function = tf.function(product, jit_compile=jit)
    found = profile(step(function), DATA, warmup=3, steps=5, trace_steps=5)
    assert found.value("host_overhead").detail["try"].startswith(remedy)


@pytest.mark.parametrize(
    ("function", "by_xla"),
    [
        (tf.function(product), False),
        (tf.function(product, jit_compile=True), True),
        (lambda x: COMPILED(x) @ x, False),
    ],
    ids=["ops", "XLA", "both"],
)
def test_products_of_xla_on_the_cpu_are_known(profile, function, by_xla):
    limits = {"min_half_precision": 0}
    found = profile(tf.function(function), DATA, warmup=3, steps=5, trace_steps=5, limits=limits)
    value = found.value("half_precision")
    assert value.detail.get(ON_CPU, False) is by_xla
    assert value.number == 0


COMPILED = tf.function(product, jit_compile=True)
