"""
tensorflow/tensorflow#35052 (also USGS-R/river-dl#109): a model is compiled with `run_eagerly=True`, left from a search for a bug.

Cause: Keras runs the train step op by op from Python. Remedy: remove `run_eagerly=True`. By hand: 50 ms, against 1.5 ms.
"""

import keras
import numpy as np
import pytest

EXPECTED = {
    "metric": "step_time",
    "where": r"(?i)run_eagerly|eager(ly)?\b|op by op",
    "try": r"(?i)run_eagerly|without eager",
    "never": r"(?i)larger batch|shapes constant|shapes and Python arguments constant|16 bits|steps_per_execution",
}

X, Y = np.ones((640, 32), "float32"), np.zeros((640, 1), "float32")


def train(tf_profile, **compiled):
    model = keras.Sequential(
        [
            keras.Input((32,)),
            *(keras.layers.Dense(32, "relu") for _ in range(8)),
            keras.layers.Dense(1),
        ]
    )
    model.compile("adam", "mse", **compiled)
    tf_profile.fit(model, X, Y, batch_size=32, epochs=50, verbose=0)


@pytest.mark.tfperf(max_step_time="8 ms")
def test_broken(tf_profile):
    train(tf_profile, run_eagerly=True)


@pytest.mark.tfperf(max_step_time="8 ms")
def test_fixed(tf_profile):
    train(tf_profile)
