"""Calls of tf.functions and of eager steps; what fails says so."""

import pytest
import tensorflow as tf
from steps import ONES, chain, dense

SIZES = [(8, 4), (8, 8), (16, 8), (16, 16), (32, 8), (32, 32), (64, 16), (64, 64)]
RUNS = []


@pytest.mark.tfperf(max_retraces=0, eager_ops=0, xla_clusters=0)
@pytest.mark.parametrize(("rows", "units"), SIZES)
def test_dense(tf_profile, rows, units):
    step, data = dense(rows, units)
    profile = tf_profile(step, data)
    assert profile.flops > rows * units


@pytest.mark.tfperf(xla_clusters=1, max_xla_compiles=0)
@pytest.mark.parametrize("jit_compile", [True, pytest.param(False, id="not-compiled")])
def test_one_executable(tf_profile, jit_compile):  # the second fails
    tf_profile(tf.function(chain, jit_compile=jit_compile), ONES)


@pytest.mark.xfail(strict=True)
@pytest.mark.tfperf(xla_clusters=1)
def test_two_executables(tf_profile):  # fails, as is expected
    first, second = (tf.function(chain, jit_compile=True) for _ in range(2))
    tf_profile(lambda x: second(first(x) + 1), ONES)


@pytest.mark.tfperf(max_xla_compiles=0)
def test_compiles_again(tf_profile):  # fails
    step = tf.function(chain, jit_compile=True, reduce_retracing=True)
    tf_profile(step, [tf.ones((n, 8)) for n in (8, 9, 8, 9)] * 3)


@pytest.mark.parametrize("limit", [0, 3, pytest.param(9, marks=pytest.mark.tfperf(max_retraces=9))])
@pytest.mark.tfperf(max_retraces=0)
def test_traces_again(tf_profile, limit):
    step = tf.function(lambda x, n: x * n)
    tf_profile(
        step, [(ONES[0], n % 4) for n in range(12)], limits={"max_retraces": limit}
    )  # 3 retraces: the first fails


@pytest.mark.tfperf(max_eager_ops=2)
@pytest.mark.parametrize("n_ops", [0, 1, 2, 3])
def test_eager(tf_profile, n_ops):  # the last fails
    double = tf.function(lambda x: x * 2)

    def step(x):
        x = double(x)
        for _ in range(n_ops):
            x = tf.sin(x)
        return x

    tf_profile(step, ONES)


@pytest.mark.tfperf(max_retraces=0)
def test_gets_better(tf_profile):  # fails when it runs first
    RUNS.append(1)
    step = tf.function(lambda x, n: x * n)
    tf_profile(step, [(ONES[0], n if len(RUNS) == 1 else 0) for n in range(12)])


def test_is_reported_only(tf_profile):
    tf_profile(*dense(8, 4))


@pytest.mark.tfperf(max_retraces=0)
def test_fails_of_itself(tf_profile):
    tf_profile(*dense(8, 4))
    raise ValueError("of its own")


@pytest.mark.tfperf(max_retraces=0)
def test_skips(tf_profile):
    tf_profile(*dense(8, 4))
    pytest.skip("not today")


@pytest.mark.tfperf(max_step_time="1 min")
def test_time(tf_profile):  # not decided with workers
    tf_profile(*dense(8, 4))
