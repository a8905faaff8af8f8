"""
keras-team/keras#4054 (also citoverse/cito#45): memory fills up when a callback keeps the weights of each batch.

Cause: a list holds a copy of all weights for each step: 2 × 256 × 256 floats, 516 KiB. Remedy: keep the latest or best ones, or a number,
or write them to a file. By hand: 525 KiB a step, against 2 KiB.
"""

import keras
import numpy as np
import pytest

EXPECTED = {
    "metric": "memory_growth",
    "where": r"(?i)list|array|ndarray|KeepWeights|kept_weights\.py:\d+|get_weights",
    "try": r"(?i)\blist|keep(s|ing)?\b|drop|latest|best|write",
    "never": r"(?i)del model|clear_session|smaller batch",
}

X, Y = np.ones((256, 256), "float32"), np.ones((256, 256), "float32")


class KeepWeights(keras.callbacks.Callback):
    def __init__(self, kept):
        super().__init__()
        self.kept = kept
        self.history = []

    def on_train_batch_end(self, batch, logs=None):
        self.history.append(self.kept(self.model.get_weights()))


def train(tf_profile, kept):
    model = keras.Sequential(
        [keras.Input((256,)), keras.layers.Dense(256, "relu"), keras.layers.Dense(256)]
    )
    model.compile("sgd", "mse")
    tf_profile.fit(model, X, Y, batch_size=16, epochs=50, verbose=0, callbacks=[KeepWeights(kept)])


@pytest.mark.tfperf(max_memory_growth="100 KiB")
def test_broken(tf_profile):
    train(tf_profile, lambda weights: weights)


@pytest.mark.tfperf(max_memory_growth="100 KiB")
def test_fixed(tf_profile):
    train(tf_profile, lambda weights: float(np.linalg.norm(weights[0])))
