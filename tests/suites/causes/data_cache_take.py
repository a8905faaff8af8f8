"""
tensorflow/tensorflow#45609, #42773: `cache()` does not help, each epoch loads everything again.

Cause: `cache().take(24)` stops before the end of what is cached, and TensorFlow drops the half-filled cache.
Remedy: `take` before `cache`. By hand: 25 to 60 ms a batch, against 4 ms.
"""

import pytest
import tensorflow as tf
from _step import step

EXPECTED = {
    "metric": "input_bound",
    "where": r"(?is)cache.*(full|fill|complete|drop|discard|take|again|partial)|(take|again).*cache",
    "try": r"(?is)take.*(before|in front of).*cache|cache.*(behind|after).*take|read .*to (its|the) end",
    "never": r"(?i)cache\(\) behind it|replace the Python function|larger batch",
}
STEPS, BATCH = 24, 16


def load(seed):
    noise = tf.random.stateless_uniform((30, 3072), tf.stack([seed, seed]))
    return tf.reduce_mean(tf.sort(noise, axis=0), axis=0)


def batches():
    return (
        tf.data.Dataset.range(STEPS * BATCH * 2)
        .map(load, num_parallel_calls=2, name="load")
        .batch(BATCH)
    )


@pytest.mark.tfperf(max_input_bound="60%")
def test_broken(tf_profile):
    tf_profile(step, batches().cache().take(STEPS).prefetch(2), warmup=STEPS + 2)


@pytest.mark.tfperf(max_input_bound="60%")
def test_fixed(tf_profile):
    tf_profile(step, batches().take(STEPS).cache().prefetch(2), warmup=STEPS + 2)
