"""
kentsommer/keras-inceptionV4#8 (also tflearn/tflearn#176): training pauses after each epoch.

Cause: the epochs are short, and the validation after each of them has many more batches than the epoch. Remedy: validate in every n-th
epoch (`validation_freq`), on fewer batches (`validation_steps`), or make epochs longer. By hand: 1 s, against 50 ms.
"""

import keras
import numpy as np
import pytest

EXPECTED = {
    "metric": "epoch_gap",
    "where": r"(?i)validation|evaluat",
    "try": r"(?i)validation_freq|validation_steps|validation_batch_size|(fewer|less|smaller|larger batches).*validation|longer epochs|steps_per_epoch",
    "never": r"(?i)shuffle|repeat\(",
}

X, Y = np.ones((8192, 64), "float32"), np.zeros((8192, 1), "float32")


def train(tf_profile, **validation):
    model = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    tf_profile.fit(model, X[:640], Y[:640], batch_size=32, epochs=60, verbose=0, **validation)


@pytest.mark.tfperf(max_epoch_gap="350 ms")
def test_broken(tf_profile):
    train(tf_profile, validation_data=(X, Y), validation_batch_size=8)


@pytest.mark.tfperf(max_epoch_gap="350 ms")
def test_fixed(tf_profile):
    train(tf_profile, validation_data=(X, Y), validation_batch_size=8, validation_steps=5)
