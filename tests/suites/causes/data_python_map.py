"""
tensorflow/tensorflow#14448, #15694: `num_parallel_calls` does not speed up a `map` of Python code.

Cause: `tf.numpy_function` holds Python's lock, so one call runs at a time whatever the parallelism.
Remedy: write the function with TensorFlow ops. By hand: 20 to 60 ms a batch, against 3 ms.
"""

import numpy as np
import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "input_bound",
    "where": r"(?i)map.*(tokenize|data_python_map\.py:\d+|runs Python)",
    "try": r"(?i)tensorflow ops|tf\.\w+|ops of tensorflow",
    "never": r"(?i)num_parallel_calls=tf\.data\.AUTOTUNE|more cores|larger batch",
}
SQUARE = tf.Variable(tf.random.normal((256, 256)) / 256)


def tokenize(text):
    counts = np.zeros(128, "float32")
    for _ in range(60):
        for character in text:
            counts[character % 128] += 1
    return counts


@tf.function
def step(counts):
    square = SQUARE + tf.reduce_mean(counts)
    for _ in range(6):
        square = tf.tanh(square @ SQUARE)
    return tf.reduce_mean(square)


def with_python(text):
    return tf.ensure_shape(tf.numpy_function(tokenize, [text], tf.float32), (128,))


def with_ops(text):
    codes = tf.cast(tf.io.decode_raw(text, tf.uint8), tf.int32) % 128
    return tf.cast(tf.math.bincount(codes, minlength=128, maxlength=128), tf.float32) * 60


def texts():
    return tf.data.Dataset.from_tensors(b"the quick brown fox " * 30).repeat()


@pytest.mark.tfperf(max_input_bound="40%")
def test_broken(tf_profile):
    data = texts().map(with_python, num_parallel_calls=4, name="tokenize")
    tf_profile(step, data.batch(8).prefetch(2))


@pytest.mark.tfperf(max_input_bound="40%")
def test_fixed(tf_profile):
    data = texts().map(with_ops, num_parallel_calls=4, name="tokenize")
    tf_profile(step, data.batch(8).prefetch(2))
