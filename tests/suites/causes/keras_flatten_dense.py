"""
keras-team/keras#8470 (also rosejn/cortex#177): a Dense layer behind `Flatten` is more expensive than the whole rest of the model.

Cause: 64 × 64 × 16 numbers go into Dense(256), which has 16.8 million weights: its products, and Adam's update of weights and moments, take
the step. Remedy: pool before (`GlobalAveragePooling2D`, strides), or fewer units. By hand: 70 to 200 ms, against 3.5 ms.
"""

import keras
import numpy as np
import pytest

EXPECTED = {
    "metric": "step_time",
    "where": r"(?i)\bdense|adam|65536|16777216",
    "try": r"(?i)pool|stride|(smaller|narrower).*(layer|dense|table|weight|variable|matrix)|(fewer|less).*(weights|parameters|units)|(layer|dense|weights).*(smaller|narrower|fewer)",
    "never": r"(?i)run_eagerly|steps_per_execution|shapes constant|IndexedSlices|sparse",
}

X, Y = np.ones((160, 64, 64, 3), "float32"), np.zeros((160,), "int32")


def train(tf_profile, neck):
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((64, 64, 3)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            neck,
            layers.Dense(256, "relu"),
            layers.Dense(10),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    tf_profile.fit(model, X, Y, batch_size=8, epochs=6, verbose=0, warmup=4)


@pytest.mark.tfperf(max_step_time="20 ms")
def test_broken(tf_profile):
    train(tf_profile, keras.layers.Flatten())


@pytest.mark.tfperf(max_step_time="20 ms")
def test_fixed(tf_profile):
    train(tf_profile, keras.layers.GlobalAveragePooling2D())
