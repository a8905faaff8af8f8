"""
keras-team/keras#11727 (also #16333): a `keras.utils.PyDataset` (Sequence) that prepares images in Python holds up training.

Cause: `__getitem__` takes longer than the step, in one worker of Python. Remedy: prepare the images once beforehand, do it in tf.data,
or use several workers (processes, since Python computes). By hand: a step takes 60 ms, and 3 ms with images that need no work.
"""

import keras
import numpy as np
import pytest

EXPECTED = {
    "metric": "input_bound",
    "where": r"(?i)Images\b|__getitem__|PyDataset|keras_sequence\.py:\d+|generator|runs Python",
    "try": r"(?i)workers|tf\.data|beforehand|once|TensorFlow ops",
    "never": r"(?i)larger batch|num_parallel_calls",
}


class Images(keras.utils.PyDataset):
    def __init__(self, blurs):
        super().__init__(workers=1)
        self.blurs = blurs

    def __len__(self):
        return 40

    def __getitem__(self, index):
        images = np.full((16, 64, 64, 3), index, "float32")
        for _ in range(self.blurs):
            images = (np.roll(images, 1, axis=1) + images + np.roll(images, -1, axis=2)) / 3
        return images, np.zeros((16, 1), "float32")


def train(tf_profile, blurs):
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((64, 64, 3)),
            layers.Conv2D(8, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(1),
        ]
    )
    model.compile("sgd", "mse")
    tf_profile.fit(model, Images(blurs), epochs=20, verbose=0)


@pytest.mark.tfperf(max_input_bound="50%")
def test_broken(tf_profile):
    train(tf_profile, blurs=60)


@pytest.mark.tfperf(max_input_bound="50%")
def test_fixed(tf_profile):
    train(tf_profile, blurs=0)
