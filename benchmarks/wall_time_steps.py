"""Eight steps for benchmarks/wall_time.py."""

import tensorflow as tf

SQUARE = tf.random.stateless_normal((128, 128), (1, 2)) * 0.1


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
