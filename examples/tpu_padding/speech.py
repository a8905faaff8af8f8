"""Words from spectrograms: two convolutions and a product with a vocabulary."""

import numpy as np
import tensorflow as tf

FRAMES = BANDS = 32


def training_step(channels, vocabulary):
    """Make a training step, the same for every device."""
    rng = np.random.default_rng(0)

    def variable(*shape):
        return tf.Variable(rng.normal(0, 0.05, shape).astype("float32"))

    first, second, words = (
        variable(3, 3, 1, channels),
        variable(3, 3, channels, channels),
        variable(channels, vocabulary),
    )

    @tf.function
    def step(spectrograms, labels):
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(tf.nn.conv2d(spectrograms, first, 1, "SAME"))
            hidden = tf.nn.relu(tf.nn.conv2d(hidden, second, 1, "SAME"))
            logits = tf.reduce_mean(hidden, (1, 2)) @ words
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        variables = [first, second, words]
        for one, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            one.assign_sub(0.1 * gradient)
        return loss

    return step


def batches(size, vocabulary, number=8):
    """Make random spectrograms with their words."""
    rng = np.random.default_rng(1)
    for _ in range(number):
        spectrograms = rng.normal(size=(size, FRAMES, BANDS, 1)).astype("float32")
        yield tf.constant(spectrograms), tf.constant(rng.integers(0, vocabulary, size), tf.int64)
