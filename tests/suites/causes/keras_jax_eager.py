"""
keras-team/keras#18648: a small model of Keras on JAX trains at 40 ms a step.

Cause: `compile(jit_compile=False)`, so each op of the model, the gradient and Adam runs on its own from Python.
Remedy: leave `jit_compile` at "auto". By hand: 20 to 60 ms a step, against 0.3 to 1 ms.
"""

import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
import pytest

EXPECTED = {
    "metric": "step_time",
    "where": r"(?i)jit_compile|eager|outside jax\.jit|op by op",
    "try": r"(?i)jit_compile",
    "never": r"(?i)larger batch|keep shapes",
}
ROWS = np.random.default_rng(0).normal(size=(1280, 32)).astype("float32")


def model(**how):
    layers = [keras.layers.Dense(32, activation="relu") for _ in range(3)]
    made = keras.Sequential([keras.Input((32,)), *layers, keras.layers.Dense(1)])
    made.compile("adam", "mse", **how)
    return made


@pytest.mark.tfperf(max_step_time="6 ms")
def test_broken(tf_profile):
    tf_profile.fit(model(jit_compile=False), ROWS, ROWS[:, :1], batch_size=32, epochs=20, verbose=0)


@pytest.mark.tfperf(max_step_time="6 ms")
def test_fixed(tf_profile):
    tf_profile.fit(model(), ROWS, ROWS[:, :1], batch_size=32, epochs=20, verbose=0)
