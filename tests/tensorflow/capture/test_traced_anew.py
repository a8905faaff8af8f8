"""Profiles whose every step is traced anew end early, with their counts and without times."""

import pytest
import tensorflow as tf

DATA = [tf.ones((4, 3))] * 100
WHY = "stopped after 6 steps, each traced again"


def scale():
    return tf.function(lambda x, rate: x * rate)


def numbers():
    return (0.1 / n for n in range(1, 1000))


def test_a_step_that_is_traced_anew_each_time_ends_its_windows(profile):
    step, rates, calls = scale(), numbers(), []

    def calling(x):
        calls.append(x)
        return step(x, next(rates))

    found = profile(calling, DATA)
    assert len(calls) == 6
    assert found.retraces == 5
    assert found.value("step_time").why == WHY
    assert found.value("retraces").detail["ended"] == WHY
    assert tf.function(lambda x: x + 1)(1.0) == 2  # nothing is left running


def test_so_does_an_own_loop(profile):
    step, rates, calls = scale(), numbers(), []
    for x in profile.steps(DATA):
        calls.append(step(x, next(rates)))
    assert len(calls) == 6
    assert profile.profile.retraces == 5


def test_new_shapes_in_each_step_go_on_unless_a_limit_forbids_them(profile):
    def growing():
        double, sizes = tf.function(lambda x: x * 2), iter(range(1, 1000))
        return lambda: double(tf.ones(next(sizes)))

    assert profile(growing(), name="free").value("step_time").number is not None
    limited = profile(growing(), name="limited", limits={"max_retraces": 2})
    assert limited.value("step_time").why == WHY


@pytest.mark.full
@pytest.mark.imports("keras")
def test_so_does_a_keras_loop(profile):
    import keras
    import numpy as np

    class Tracing(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            tf.function(lambda x: x + 1)(1.0)

    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((200, 3), "float32"), np.ones((200, 1), "float32")
    found = profile.fit(model, x, y, batch_size=2, verbose=0, callbacks=[Tracing()])
    assert found.retraces == 5
    assert int(model.optimizer.iterations) in (0, 6)


@pytest.mark.full
@pytest.mark.imports("jax")
def test_so_does_a_step_of_jax(profile):
    import jax
    import jax.numpy as jnp

    step = jax.jit(lambda x, n: x * n, static_argnums=1)
    numbers, x = iter(range(1000)), jnp.ones(3)
    found = profile(lambda: step(x, next(numbers)))
    assert found.retraces == 5
    assert found.xla_compiles == 5
    assert found.value("step_time").why == WHY
