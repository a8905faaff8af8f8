"""
keras-team/keras#19992 (also #4365): Adam is slow with a large embedding, though a batch touches few rows of it.

Cause: the gradient is IndexedSlices, and Adam of Keras 3 makes it dense, so weights and moments of all rows change in each step.
Remedy: an optimizer that keeps it sparse (LazyAdam elsewhere, SGD), or a smaller table. By hand: 50 to 120 ms, and 3 ms with a
table of 20,000 rows.
"""

import keras
import numpy as np
import pytest

EXPECTED = {
    "metric": "step_time",
    "where": r"(?i)adam.*(600,?000|embedding|UnsortedSegmentSum)|(600,?000|embedding|UnsortedSegmentSum).*adam",
    "try": r"(?i)sparse|lazy|sgd|smaller (table|embedding)|fewer rows",
    "never": r"(?i)larger batch|shapes constant|16 bits",
}

X = np.random.default_rng(0).integers(0, 600_000, (512, 8)).astype("int32")
Y = np.zeros((512, 1), "float32")


def train(tf_profile, words):
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((8,), dtype="int32"),
            layers.Embedding(words, 32),
            layers.GlobalAveragePooling1D(),
            layers.Dense(1),
        ]
    )
    model.compile("adam", "mse")
    tf_profile.fit(model, X % words, Y, batch_size=32, epochs=100, verbose=0)


@pytest.mark.tfperf(max_step_time="12 ms")
def test_broken(tf_profile):
    train(tf_profile, 600_000)


@pytest.mark.tfperf(max_step_time="12 ms")
def test_fixed(tf_profile):
    train(tf_profile, 20_000)
