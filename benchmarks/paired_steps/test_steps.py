"""
The steps whose turns are recorded.

The variable PLANTED says by how much they are slowed down, by more work of a kind that is in them already; SHORT, that windows are
short, where turns are what is recorded; WARM_UP_S, for how many seconds a step runs before it is profiled.
"""

import os
import time

import numpy as np
import tensorflow as tf

PLANTED = float(os.environ.get("PLANTED", "0"))
WARM_UP_S = float(os.environ.get("WARM_UP_S", "0"))
WINDOWS = {"steps": 20, "trace_steps": 2} if "SHORT" in os.environ else {}
SQUARE = tf.random.stateless_normal((96, 96), (1, 2)) * 0.1


def work(rows):
    """Ten matrix products with `rows` rows."""
    x = tf.ones((rows, 96))
    for _ in range(10):
        x = tf.tanh(x @ SQUARE)
    return x


def convolutions(filters, size, rows):
    """A training step of a small convolutional network for 32 images, with `rows` rows of extra work."""
    shapes = (3, 3, 3, filters), (3, 3, filters, filters)
    kernels = [tf.Variable(tf.random.stateless_normal(shape, (3, 4)) * 0.05) for shape in shapes]
    images = tf.random.stateless_normal((32, size, size, 3), (5, 6))

    def step():
        with tf.GradientTape() as tape:
            x = tf.nn.relu(tf.nn.conv2d(images, kernels[0], 2, "SAME"))
            loss = tf.reduce_mean(tf.nn.conv2d(x, kernels[1], 1, "SAME") ** 2)
        for kernel, gradient in zip(kernels, tape.gradient(loss, kernels), strict=True):
            kernel.assign_sub(0.01 * gradient)
        return loss + tf.reduce_sum(work(rows))

    return tf.function(step)


def matmul_0_3ms():
    rows = round(150 * (1 + 1.55 * PLANTED))
    return tf.function(lambda: work(rows), autograph=False)


def convolution_5ms():
    return convolutions(32, 32, round(1 + 2600 * PLANTED))


def convolution_50ms():
    return convolutions(48, 64, round(1 + 21500 * PLANTED))


def warmed(step):
    end = time.monotonic() + WARM_UP_S
    while time.monotonic() < end:
        step()
    return step


def test_matmul_0_3ms(tf_profile):
    tf_profile(warmed(matmul_0_3ms()), **WINDOWS)


def test_convolution_5ms(tf_profile):
    tf_profile(warmed(convolution_5ms()), **WINDOWS)


def test_convolution_50ms(tf_profile):
    tf_profile(warmed(convolution_50ms()), **WINDOWS)


def test_keras_fit(tf_profile):
    """A small model, whose epochs of 300 batches take 0.2 s."""
    import keras

    model = keras.Sequential([keras.layers.Dense(16, "relu"), keras.layers.Dense(4)])
    model.compile("sgd", "mse", metrics=["mae", "cosine_similarity"])
    x, y = np.ones((32 * 300, 16), "float32"), np.ones((32 * 300, 4), "float32")
    tf_profile.fit(model, x, y, batch_size=32, verbose=0)


def elements():
    while True:
        time.sleep(0.02 * (1 + PLANTED))  # the load under test: an element that is waited for
        yield np.ones((64, 96), np.float32)


def test_pipeline_20ms(tf_profile):
    data = tf.data.Dataset.from_generator(
        elements, output_signature=tf.TensorSpec((64, 96), tf.float32)
    ).prefetch(8)
    tf_profile(tf.function(lambda x: tf.reduce_sum(tf.tanh(x @ SQUARE))), data, **WINDOWS)
