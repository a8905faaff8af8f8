"""
tensorflow/tensorflow#56258, #13101: `from_generator` that yields single rows is more than ten times slower than arrays.

Cause: each of 512 rows of a batch crosses from Python to TensorFlow on its own.
Remedy: yield whole batches, or `from_tensor_slices`. By hand: 50 to 100 ms a batch, against 4 ms.
"""

import numpy as np
import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "input_bound",
    "where": r"(?i)generator.*(rows|runs Python|data_generator_rows\.py:\d+)",
    "try": r"(?i)yield (whole )?batches|(whole )?batch.{0,20}(yield|generator)|from_tensor_slices",
    "never": r"(?i)num_parallel_calls|larger batch",
}
ROWS = np.ones((40_000, 16), "float32")
BATCH = 512
SQUARE = tf.Variable(tf.random.normal((256, 256)) / 256)


def rows():
    yield from ROWS


def whole_batches():
    for start in range(0, len(ROWS) - BATCH, BATCH):
        yield ROWS[start : start + BATCH]


@tf.function
def step(batch):
    square = SQUARE + tf.reduce_mean(batch)
    for _ in range(10):
        square = tf.tanh(square @ SQUARE)
    return tf.reduce_mean(square)


@pytest.mark.tfperf(max_input_bound="40%")
def test_broken(tf_profile):
    spec = tf.TensorSpec((16,), tf.float32)
    data = tf.data.Dataset.from_generator(rows, output_signature=spec)
    tf_profile(step, data.batch(BATCH, drop_remainder=True).repeat().prefetch(2))


@pytest.mark.tfperf(max_input_bound="40%")
def test_fixed(tf_profile):
    spec = tf.TensorSpec((BATCH, 16), tf.float32)
    data = tf.data.Dataset.from_generator(whole_batches, output_signature=spec)
    tf_profile(step, data.repeat().prefetch(2))
