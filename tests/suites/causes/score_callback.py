"""
keras-team/keras#13034 (also #5794): a callback predicts the whole training set at each end of an epoch, for an F1 score.

Cause: `on_epoch_end` of the callback runs `model.predict` with its small default batches. Remedy: a metric of the model, which has
the predictions anyway, or the score in every n-th epoch. By hand: 500 ms, against 30 ms.
"""

import keras
import numpy as np
import pytest

EXPECTED = {
    "metric": "epoch_gap",
    "where": r"(?i)Score\b|score_callback\.py:\d+|on_epoch_end|callback",
    "try": r"(?i)callback.*(less often|every|epoch)|every .*epoch|metric|batch_size",
    "never": r"(?i)validation_freq|validation_steps|shuffle|repeat\(",
}

X, Y = np.ones((12800, 64), "float32"), np.zeros((12800, 1), "float32")


class Score(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        guess = self.model.predict(X, verbose=0) > 0.5
        self.score = 2 * np.sum(guess * Y) / np.maximum(np.sum(guess) + np.sum(Y), 1)


def train(tf_profile, callbacks, metrics):
    model = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(1, "sigmoid")]
    )
    model.compile("sgd", "binary_crossentropy", metrics=metrics)
    tf_profile.fit(
        model, X[:640], Y[:640], batch_size=32, epochs=60, verbose=0, callbacks=callbacks
    )


@pytest.mark.tfperf(max_epoch_gap="150 ms")
def test_broken(tf_profile):
    train(tf_profile, [Score()], [])


@pytest.mark.tfperf(max_epoch_gap="150 ms")
def test_fixed(tf_profile):
    train(tf_profile, [], [keras.metrics.F1Score(threshold=0.5)])
