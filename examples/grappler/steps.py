"""The two steps of TensorFlow's guide to Grappler."""

import numpy as np
import tensorflow as tf

SIZE = 500
N_PRODUCTS = 50


def products():
    """Make a step that multiplies a constant by itself many times, independent of its input."""
    start = (
        np.random.default_rng(0).normal(0, SIZE**-0.5, (SIZE, SIZE)).astype("float32")
    )  # keeps the sizes of the products

    @tf.function
    def step(x):
        factor = product = tf.constant(start)
        for _ in range(N_PRODUCTS):
            product = tf.matmul(product, factor)
        return x + product

    return step


def checked():
    """Make a step with a numeric check from its development."""

    @tf.function
    def step(x):
        return tf.sqrt(tf.debugging.check_numerics(x, "a NaN came in")) * 2

    return step
