"""A plain loop grows as slowly after profiles, also after one that failed, as it did before."""

import pytest

pytestmark = pytest.mark.nightly

BODY = """
import gc

import numpy as np
import pytest

from pytest_tfperf.machine.memory import read_heap

{made}

def growth(loop, n=40):
    for _ in range(10):
        loop()
    gc.collect()
    before = read_heap().held
    for _ in range(n):
        loop()
    gc.collect()
    return (read_heap().held - before) / n

def test_growth(tf_profile):
    before = growth(loop)
    for name in ("first", "second"):
        found = profiled(tf_profile, name)
        for metric in ("graph_ops", "flops", "peak_memory", "xla_coverage", "op_guide_findings"):
            found.value(metric)
    with pytest.raises(RuntimeError, match="the user's"):
        failing(tf_profile)
    assert growth(loop) < before + 4_000
"""
KERAS = """
import os
os.environ["TF_USE_LEGACY_KERAS"] = "{legacy}"
import tensorflow as tf

X, Y = np.ones((64, 8), "float32"), np.ones((64, 1), "float32")
model = tf.keras.Sequential([tf.keras.layers.Dense(4), tf.keras.layers.Dense(1)])
model.compile("sgd", "mse")

def loop():
    model.predict(X, verbose=0)

def profiled(tf_profile, name):
    return tf_profile.fit(model, X, Y, batch_size=4, epochs=4, verbose=0, name=name)

class Fails(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 12:
            raise RuntimeError("the user's")

def failing(tf_profile):
    tf_profile.fit(
        model, X, Y, batch_size=4, epochs=2, verbose=0, callbacks=[Fails()], name="fails"
    )
"""
JAX = """
import jax
import jax.numpy as jnp

X = jnp.ones((8, 8))

@jax.jit
def step(x):
    return jnp.tanh(x @ x)

def loop():
    step(X).block_until_ready()

def profiled(tf_profile, name):
    return tf_profile(step, [X] * 4, name=name)

def failing(tf_profile):
    calls = iter(range(20))

    def fails(x):
        if next(calls, None) is None:
            raise RuntimeError("the user's")
        return step(x)

    tf_profile(fails, [X] * 4, name="fails")
"""
LOOPS = {"Keras 3": KERAS.format(legacy=0), "Keras 2": KERAS.format(legacy=1), "JAX": JAX}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_grows_no_faster_after_profiles(pytester, processes, loop):
    if loop == "Keras 2":
        pytest.importorskip("tf_keras")
    pytester.makepyfile(BODY.format(made=LOOPS[loop]))
    pytester.runpytest_subprocess("-Wignore").assert_outcomes(passed=1)
