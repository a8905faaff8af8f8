"""
keras-team/keras#16700: a callback that averages weights by `get_weights` and `set_weights` after each batch takes most of the time.

Cause: both copy all weights between TensorFlow and NumPy, each variable on its own, in `on_train_batch_end`. Remedy: do it once in
many batches or at the end of an epoch, or average in the graph (`use_ema=True` of the optimizer). By hand: 35 ms, against 3.5 ms.
"""

import keras
import numpy as np
import pytest

EXPECTED = {
    "metric": "step_time",
    "where": r"(?i)WeightAverage|weights_callback\.py:\d+|get_weights|set_weights",
    "try": r"(?i)callback.*(less often|every|epoch)|end of (an|each|the) epoch|use_ema|(get|set)_weights",
    "never": r"(?i)larger batches|shapes constant|shapes and Python arguments constant|16 bits|into a tf\.function",
}

X, Y = np.ones((512, 64), "float32"), np.zeros((512, 1), "float32")


class WeightAverage(keras.callbacks.Callback):
    def __init__(self, every):
        super().__init__()
        self.every = every
        self.mean = None

    def on_train_batch_end(self, batch, logs=None):
        if batch % self.every == self.every - 1:
            weights = self.model.get_weights()
            self.mean = [
                0.99 * old + 0.01 * new
                for old, new in zip(self.mean or weights, weights, strict=True)
            ]
            self.model.set_weights(self.mean)


def train(tf_profile, callbacks):
    layers = [keras.layers.Dense(96, "relu") for _ in range(80)]
    model = keras.Sequential([keras.Input((64,)), *layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    tf_profile.fit(model, X, Y, batch_size=16, epochs=100, verbose=0, callbacks=callbacks)


@pytest.mark.tfperf(max_step_time="15 ms")
def test_broken(tf_profile):
    train(tf_profile, [WeightAverage(1)])


@pytest.mark.tfperf(max_step_time="15 ms")
def test_fixed(tf_profile):
    train(tf_profile, [])
