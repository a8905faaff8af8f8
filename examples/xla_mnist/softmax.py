"""Softmax regression on images of digits, with a step that XLA can compile."""

import numpy as np
import tensorflow as tf

PIXELS, CLASSES, BATCH = 28 * 28, 10, 128


def digits(n=10 * BATCH, seed=0):
    """Make images and labels of MNIST's shape: each class is a pattern under noise."""
    random = np.random.default_rng(seed)
    patterns, labels = random.random((CLASSES, PIXELS), "float32"), random.integers(0, CLASSES, n)
    images = patterns[labels] + random.normal(0, 0.5, (n, PIXELS)).astype("float32")
    return images, labels.astype("int32")


def training_step(jit_compile):
    """Make a step with its own weights: images and labels in, the loss out."""
    weights, bias = tf.Variable(tf.zeros((PIXELS, CLASSES))), tf.Variable(tf.zeros((CLASSES,)))

    @tf.function(jit_compile=jit_compile)
    def train(images, labels):
        with tf.GradientTape() as tape:
            logits = images @ weights + bias
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        for variable, gradient in zip(
            (weights, bias), tape.gradient(loss, (weights, bias)), strict=True
        ):
            variable.assign_sub(0.1 * gradient)
        return loss

    return train
