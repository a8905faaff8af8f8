"""
The steps whose turns are recorded.

The variable PLANTED says by how much they are slowed down, by more work of a kind that is in them already; SHORT, that windows are
short, where turns are what is recorded.
"""

import os
import time

import numpy as np
import tensorflow as tf

PLANTED = float(os.environ.get("PLANTED", "0"))
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


def test_matmul_0_3ms(tf_profile):
    tf_profile(matmul_0_3ms(), **WINDOWS)


def test_convolution_5ms(tf_profile):
    tf_profile(convolution_5ms(), **WINDOWS)


def test_convolution_50ms(tf_profile):
    tf_profile(convolution_50ms(), **WINDOWS)


def elements():
    while True:
        time.sleep(0.02 * (1 + PLANTED))  # the load under test: an element that is waited for
        yield np.ones((64, 96), np.float32)


def test_pipeline_20ms(tf_profile):
    data = tf.data.Dataset.from_generator(
        elements, output_signature=tf.TensorSpec((64, 96), tf.float32)
    ).prefetch(8)
    tf_profile(tf.function(lambda x: tf.reduce_sum(tf.tanh(x @ SQUARE))), data, **WINDOWS)
