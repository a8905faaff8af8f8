"""
NVIDIA/DeepLearningExamples#643, tensorlayer/TensorLayer#766: the device is idle while the next batch is read.

Cause: nothing prefetches, so 10 ms of reading and 12 ms of the step take turns.
Remedy: `prefetch` at the end of the pipeline. By hand: 40 to 50 % of the time is waiting, against 1 to 5 %.
"""

import pytest
import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep

EXPECTED = {
    "metric": "input_bound",
    "where": r"(?i)no prefetch|without (a )?prefetch|not prefetch|nothing (is )?prefetch|no stage .*(ahead|prefetch)",
    "try": r"(?i)\A[^;\n]*prefetch",
    "never": r"(?i)larger batch|replace the Python function",
}
SQUARE = tf.Variable(tf.random.normal((512, 512)) / 512)


@tf.function
def step(batch):
    square = SQUARE + tf.reduce_mean(batch)
    for _ in range(30):
        square = tf.tanh(square @ SQUARE)
    return tf.reduce_mean(square)


def reading():
    """Batches of storage that answers after 10 ms."""
    return tf.data.Dataset.from_tensors(tf.ones((64, 64))).repeat().apply(sleep(10_000))


@pytest.mark.tfperf(max_input_bound="15%")
def test_broken(tf_profile):
    tf_profile(step, reading())


@pytest.mark.tfperf(max_input_bound="15%")
def test_fixed(tf_profile):
    tf_profile(step, reading().prefetch(4))
