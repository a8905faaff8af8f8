"""
tensorflow/tensorflow#53169, #67330: a dataset with a filter is slow: 19 of 20 images are decoded and thrown away.

Cause: `filter` stands behind the `map` that decodes, although it needs the label only. Remedy: filter first, then decode.
By hand: 40 to 60 ms of waiting for a step of 8 ms, against 0 to 1 ms.
"""

import pytest
import tensorflow as tf
from _step import step

EXPECTED = {
    "metric": "input_bound",
    "where": r"(?i)decode|data_late_filter\.py:\d+|filter",
    "try": r"(?i)filter.*(before|earlier|first|in front)|(before|behind|after).*filter",
    "never": r"(?i)larger batch",
}


def decode(label):
    noise = tf.random.uniform((3, 1_500), seed=1) + tf.cast(label, tf.float32)
    return tf.reduce_mean(tf.sort(noise, axis=1), axis=0), label


def is_wanted(label):
    return label % 20 == 0


def labels():
    return tf.data.Dataset.range(1_000_000)


def batches(data):
    return data.map(lambda image, label: image).batch(8).prefetch(2)


@pytest.mark.tfperf(max_input_bound="40%")
def test_broken(tf_profile):
    data = labels().map(decode, name="decode").filter(lambda image, label: is_wanted(label))
    tf_profile(step, batches(data), steps=20, trace_steps=10)


@pytest.mark.tfperf(max_input_bound="40%")
def test_fixed(tf_profile):
    data = labels().filter(is_wanted).map(decode, name="decode")
    tf_profile(step, batches(data), steps=20, trace_steps=10)
