"""
keras-team/keras-cv#1607 (also tensorflow/tensorflow#55194): a random rotation in the model, and XLA compiles nothing of it.

Cause: ImageProjectiveTransformV3 has no XLA kernel, so Keras leaves the model uncompiled, also with `jit_compile=True`.
Remedy: rotate in the dataset, outside the model.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "xla_coverage",
    "where": r"(?i)ImageProjectiveTransform.*random_?rotation|random_?rotation.*ImageProjectiveTransform",
    "try": r"(?i)(out of|outside|before) the (model|compiled|function)|(into|in) the (dataset|input)",
    "never": r"(?i)set jit_compile=True|constant shapes",
}


def network(*augmentation):
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((24, 24, 3)),
            *augmentation,
            layers.Conv2D(8, 3, strides=2, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(4),
        ]
    )


def images():
    return tf.data.Dataset.from_tensor_slices(
        (np.ones((320, 24, 24, 3), "float32"), np.zeros((320, 4), "float32"))
    )


def train(model, data, tf_profile):
    model.compile("sgd", "mse", jit_compile=True)
    tf_profile.fit(model, data.repeat().prefetch(2), steps_per_epoch=40, epochs=20, verbose=0)


@pytest.mark.tfperf(min_xla_coverage="90%")
def test_broken(tf_profile):
    train(network(keras.layers.RandomRotation(0.1)), images().batch(32), tf_profile)


@pytest.mark.tfperf(min_xla_coverage="90%")
def test_fixed(tf_profile):
    rotate = keras.layers.RandomRotation(0.1)
    data = (
        images()
        .batch(32, drop_remainder=True)
        .map(lambda x, y: (rotate(x, training=True), y), num_parallel_calls=2)
    )
    train(network(), data, tf_profile)
