"""
tensorflow/tensorflow#47755, tensorflow/docs#1097: one `map` decodes and flips at random, and so cannot be cached.

Cause: the decoding takes 95 % of the stage and is the same in each epoch, the flip takes 5 % and must differ.
Remedy: two stages, and `cache` between them. A cache behind the stage would freeze the flips.
By hand: 20 to 50 ms a batch, against 4 ms.
"""

import pytest
import tensorflow as tf
from _step import step

EXPECTED = {
    "metric": "input_bound",
    "where": r"(?i)map.*(load|data_random_behind_decode\.py:\d+)",
    "try": r"(?i)(before|without|except|split|separate).*random|random.*(apart|behind|after|of its own|separate)",
    "never": r"(?i)cache\(\) behind it, if|replace the Python function|larger batch",
}


def decode(number):
    noise = tf.random.stateless_uniform((12, 12_000), tf.stack([number, number]))
    return tf.reduce_mean(tf.sort(noise, axis=1), axis=0)


def flip(image):
    return tf.cond(tf.random.uniform(()) < 0.5, lambda: tf.reverse(image, [0]), lambda: image)


def load(number):
    return flip(decode(number))


@pytest.mark.tfperf(max_input_bound="60%")
def test_broken(tf_profile):
    data = tf.data.Dataset.range(160).map(load, num_parallel_calls=tf.data.AUTOTUNE, name="load")
    tf_profile(step, data.batch(8).prefetch(tf.data.AUTOTUNE), warmup=40)


@pytest.mark.tfperf(max_input_bound="60%")
def test_fixed(tf_profile):
    data = tf.data.Dataset.range(160).map(decode, num_parallel_calls=tf.data.AUTOTUNE).cache()
    data = data.map(flip, num_parallel_calls=tf.data.AUTOTUNE)
    tf_profile(step, data.batch(8).prefetch(tf.data.AUTOTUNE), warmup=40)
