"""
keras-team/keras#21179, #21208: `TimeDistributed(Dense)` of Keras 3 is far slower than that of Keras 2.

Cause: the wrapper calls its layer once for each of 300 time steps, so the graph holds 300 copies forwards and backwards, which are traced
and optimised in the first step. Remedy: a Dense layer takes sequences as it is, so leave the wrapper out (or reshape, and call the layer
once). By hand: 2.7 to 5.7 s for the first step, against 0.1 to 0.2 s; then 5 to 7 ms a step, against 1.2 ms.
"""

import keras
import numpy as np
import pytest

EXPECTED = {
    "metric": "first_step_time",
    "where": r"(?i)time_?distributed",
    "try": r"(?i)(without|instead of|remove|leave out|drop).*(TimeDistributed|wrapper)|(layer|Dense).*(sequence|itself|once|whole)|reshape",
    "never": r"(?i)larger batch|shapes constant|16 bits",
}

X, Y = np.ones((320, 300, 4), "float32"), np.zeros((320, 1), "float32")


def train(tf_profile, dense):
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((300, 4)), dense, layers.GlobalAveragePooling1D(), layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    tf_profile.fit(model, X, Y, batch_size=16, epochs=4, verbose=0)


@pytest.mark.tfperf(max_first_step_time="1 s")
def test_broken(tf_profile):
    train(tf_profile, keras.layers.TimeDistributed(keras.layers.Dense(8, "relu")))


@pytest.mark.tfperf(max_first_step_time="1 s")
def test_fixed(tf_profile):
    train(tf_profile, keras.layers.Dense(8, "relu"))
