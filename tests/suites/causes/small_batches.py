"""
keras-team/keras#16573 (also tensorflow/tensorflow#48844): `fit` of a tiny model spends its time between the batches.

Cause: for each batch Keras calls its train function and its callbacks from Python, and the batch itself takes less than that. Remedy:
`steps_per_execution`, larger batches. By hand: 0.9 ms a batch, against 0.14 ms.
"""

import keras
import numpy as np
import pytest

EXPECTED = {
    "metric": "python_calls",
    "where": r"(?i)keras",
    "try": r"(?i)steps_per_execution",
    "never": r"(?i)(put|move).*(into|in) a tf\.function|num_parallel_calls|16 bits",
}

X, Y = np.ones((3200, 4), "float32"), np.zeros((3200, 1), "float32")


def train(tf_profile, **compiled):
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse", **compiled)
    tf_profile.fit(model, X, Y, batch_size=8, epochs=60, verbose=0)


@pytest.mark.tfperf(max_python_calls=50)
def test_broken(tf_profile):
    train(tf_profile)


@pytest.mark.tfperf(max_python_calls=50)
def test_fixed(tf_profile):
    train(tf_profile, steps_per_execution=40)
