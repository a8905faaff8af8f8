"""Ten steps, with tests between them that keep a core busy."""

import time

import keras
import numpy as np
import pytest
import tensorflow as tf

SQUARE = tf.random.stateless_normal((128, 128), (1, 2)) * 0.1
FILLERS = 3


def products(n):
    def step():
        x = SQUARE
        for _ in range(n):
            x = tf.tanh(x @ SQUARE)
        return x

    return tf.function(step)


def compiled(n):
    return tf.function(products(n).python_function, jit_compile=True)


def convolution(size):
    kernel = tf.Variable(tf.random.stateless_normal((3, 3, 3, 16), (3, 4)))
    images = tf.random.stateless_normal((16, size, size, 3), (5, 6))
    return tf.function(lambda: tf.reduce_sum(tf.nn.conv2d(images, kernel, 1, "SAME")))


def eager():
    return sum(tf.reduce_sum(tf.tanh(SQUARE)) for _ in range(10))


STEPS = {
    "products 5": lambda: products(5),
    "products 50": lambda: products(50),
    "products 200": lambda: products(200),
    "compiled 20": lambda: compiled(20),
    "compiled 200": lambda: compiled(200),
    "convolution 32": lambda: convolution(32),
    "convolution 96": lambda: convolution(96),
    "eager": lambda: eager,
}


@pytest.mark.parametrize("name", STEPS)
def test_step(tf_profile, name):
    tf_profile(STEPS[name]())


def test_pipeline(tf_profile):
    data = tf.data.Dataset.range(10**6).map(lambda n: tf.random.stateless_normal((64, 64), (n, 1)))
    tf_profile(tf.function(lambda x: tf.reduce_sum(x @ x)), data.batch(8).prefetch(2))


def test_keras(tf_profile):
    model = keras.Sequential([keras.layers.Dense(256, "relu"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    x, y = np.ones((6400, 32), "float32"), np.ones((6400, 1), "float32")
    tf_profile.fit(model, x, y, epochs=3, verbose=0)


@pytest.mark.parametrize("n", range(FILLERS * 10))
def test_busy(n):
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        np.linalg.norm(np.ones((300, 300)) @ np.ones((300, 300)))
