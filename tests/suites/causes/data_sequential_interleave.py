"""
tensorflow/tensorflow#31019, #44274: reading many files waits for each of them in turn.

Cause: `interleave` without `num_parallel_calls` reads one file at a time, and storage answers after 3 ms.
Remedy: `num_parallel_calls=tf.data.AUTOTUNE`. By hand: 50 to 60 ms a batch of waiting, against 2 to 10 ms.
"""

import pytest
import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep

EXPECTED = {
    "metric": "input_bound",
    "where": r"(?i)interleave.*(sequential|one (file|call|element)|data_sequential_interleave\.py:\d+)|sequential.*interleave",
    "try": r"(?i)interleave.*num_parallel_calls|num_parallel_(calls|reads)",
    "never": r"(?i)larger batch|replace the Python function",
}
SQUARE = tf.Variable(tf.random.normal((512, 512)) / 512)


@tf.function
def step(records):
    square = SQUARE + tf.reduce_mean(tf.cast(tf.strings.length(records), tf.float32))
    for _ in range(10):
        square = tf.tanh(square @ SQUARE)
    return tf.reduce_mean(square)


def files(folder):
    for number in range(64):
        with tf.io.TFRecordWriter(str(folder / f"{number:02}.tfrecord")) as writer:
            for _ in range(4):
                writer.write(b"row" * 1000)
    return tf.data.Dataset.list_files(str(folder / "*.tfrecord"), shuffle=False)


def read(path):
    """The records of a file on storage that takes 3 ms to answer."""
    return tf.data.TFRecordDataset(path).apply(sleep(3000))


@pytest.mark.tfperf(max_input_bound="40%")
def test_broken(tf_profile, tmp_path):
    data = files(tmp_path).interleave(read, cycle_length=16)
    tf_profile(step, data.batch(16).repeat().prefetch(2))


@pytest.mark.tfperf(max_input_bound="40%")
def test_fixed(tf_profile, tmp_path):
    data = files(tmp_path).interleave(read, cycle_length=16, num_parallel_calls=16)
    tf_profile(step, data.batch(16).repeat().prefetch(2))
