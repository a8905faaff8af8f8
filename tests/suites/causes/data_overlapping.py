"""
tensorflow/tensorflow#44046, #43703, #37013: sliding windows by `window(...).flat_map(...)` are far slower than indexing an array.

Cause: each window is a dataset of its own, with an iterator that hands over 128 single numbers. Remedy: cut windows out of a tensor
(`tf.gather`, `tf.signal.frame`, `timeseries_dataset_from_array`). By hand: 33 ms of waiting for a step of 4 ms, against 0.2 ms.
"""

import numpy as np
import pytest
import tensorflow as tf
from _step import step

EXPECTED = {
    "metric": "input_bound",
    "where": r"(?i)window|flat_?map",
    "try": r"(?i)gather|slic|signal\.frame|timeseries|index|(whole|many) (windows|rows|elements)|one (op|call)|tensor.*window|window.*tensor",
    "never": r"(?i)larger batch|prefetch\(|decode",
}

SERIES = np.random.default_rng(0).random(200_000, "float32")


@pytest.mark.tfperf(max_input_bound="40%")
def test_broken(tf_profile):
    data = tf.data.Dataset.from_tensor_slices(SERIES).window(128, shift=1, drop_remainder=True)
    data = data.flat_map(lambda window: window.batch(128)).batch(256)
    tf_profile(step, data.prefetch(2))


@pytest.mark.tfperf(max_input_bound="40%")
def test_fixed(tf_profile):
    series, offsets = tf.constant(SERIES), tf.range(128, dtype=tf.int64)
    data = tf.data.Dataset.range(len(SERIES) - 127).batch(256, drop_remainder=True)
    data = data.map(lambda starts: tf.gather(series, starts[:, None] + offsets))
    tf_profile(step, data.prefetch(2))
