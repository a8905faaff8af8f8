"""Remedies that depend on the program: one that is a tf.function already, products of XLA on a CPU."""

import pytest
import tensorflow as tf

from pytest_tfperf.metrics.flops import ON_CPU

X = tf.ones((64, 64))
DATA = tf.data.Dataset.from_tensors(X).repeat()
FEW = {"warmup": 12, "steps": 3, "trace_steps": 3}
"""Samples of the warm-up's stacks tell the remedy; events of cheap calls vanish after some 100."""
INTO_FUNCTION = "move the step's Python code into a tf.function"
IN_EACH_CALL = "do more in each call of the tf.function"


def product(x):
    return x @ x


def loops_in_python(function):
    def step(x):
        return [function(x) for _ in range(3)]

    return step


@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_step_that_is_one_function_is_not_told_to_become_one(profile, jit):
    function, other = tf.function(product, jit_compile=jit), tf.function(lambda x: x + 1)
    for name, step, remedy in (
        ("one call", function, IN_EACH_CALL),
        ("three calls", loops_in_python(function), "loop inside one tf.function"),
        ("two functions", lambda x: function(other(x)), "call them from one tf.function"),
        ("an eager op", lambda x: function(x + 1), INTO_FUNCTION),
    ):
        found = profile(step, DATA, name=name, **FEW)
        assert found.value("host_overhead").detail["try"].startswith(remedy), name


def test_products_of_xla_on_the_cpu_are_known(profile):
    compiled = tf.function(product, jit_compile=True)
    for name, function, by_xla in (
        ("ops", product, False),
        ("XLA", compiled, True),
        ("both", lambda x: compiled(x) @ x, False),
    ):
        step, limits = tf.function(function), {"min_half_precision": 0}
        value = profile(step, DATA, name=name, limits=limits, **FEW).value("half_precision")
        assert value.detail.get(ON_CPU, False) is by_xla, name
        assert value.number == 0, name
