"""
tensorflow/tensorflow#48229: a function is traced again for arguments of the same shape, since their dtype differs.

Cause: rows that were augmented in NumPy are float64, all others are float32, and each dtype is a trace of its own. Remedy: one dtype
(`astype("float32")` where the rows are made, a cast before the call). By hand: 2 traces, against 1.
"""

import numpy as np
import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "retraces",
    "where": r"(?i)rows.*(float32|f32).*(float64|f64)|rows.*(float64|f64).*(float32|f32)|rows.*dtype",
    "try": r"(?i)dtype|\bcast|astype|float32|one type|same type",
    "never": r"(?i)\bpad|drop_remainder|reduce_retracing|bucket|Python number",
}

PLAIN = np.ones((32, 16), "float32")
NOISE = np.random.default_rng(0).normal(size=(32, 16))


def training():
    weights = tf.Variable(tf.ones((16, 1)))

    @tf.function
    def train(rows):
        return tf.reduce_mean(tf.cast(rows, tf.float32) @ weights)

    return train


@pytest.mark.tfperf(max_retraces=0)
def test_broken(tf_profile):
    tf_profile(training(), [PLAIN, PLAIN, PLAIN + 0.1 * NOISE, PLAIN])


@pytest.mark.tfperf(max_retraces=0)
def test_fixed(tf_profile):
    tf_profile(training(), [PLAIN, PLAIN, (PLAIN + 0.1 * NOISE).astype("float32"), PLAIN])
