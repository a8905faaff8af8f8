"""
keras-team/keras#6457: a GAN's loop calls `model.compile` to freeze and thaw a part, and gets slower.

Cause: `compile` throws the traced step away, so each `train_on_batch` traces anew. Remedy: compile once before the loop, one model
for each phase.
"""

import keras
import numpy as np
import pytest

EXPECTED = {
    "metric": "retraces",
    "where": r"(?i)compile",
    "try": r"(?i)compile\b.*(once|before|outside)|(once|before|outside).*compile\b",
    "never": r"(?i)reduce_retracing|Python numbers",
}

X, Y = np.ones((32, 16), "float32"), np.zeros((32, 1), "float32")


def judge():
    return keras.Sequential(
        [keras.Input((16,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(1)]
    )


@pytest.mark.tfperf(max_retraces=0)
def test_broken(tf_profile):
    model = judge()

    def step():
        for layer, frozen in zip(model.layers, (True, False), strict=True):
            layer.trainable = not frozen
        model.compile("sgd", "mse")
        model.train_on_batch(X, Y)

    tf_profile(step, steps=20, trace_steps=5)


@pytest.mark.tfperf(max_retraces=0)
def test_fixed(tf_profile):
    model = judge()
    model.layers[0].trainable = False
    model.compile("sgd", "mse")
    tf_profile(lambda: model.train_on_batch(X, Y))
