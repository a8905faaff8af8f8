"""
tensorflow/tensorflow#44008, #28831: a validation set made by `skip` begins late.

Cause: `skip(600)` decodes 600 images in each epoch and throws them away.
Remedy: `skip` before `map`, or files of its own. By hand: 300 to 900 ms between epochs, against 2 to 10 ms.
"""

import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "epoch_gap",
    "where": r"(?i)skip",
    "try": r"(?i)skip.*(before|earlier|first)|(before|behind).*skip|files of its own|split",
    "never": r"(?i)larger batch|shuffle",
}
SQUARE = tf.Variable(tf.random.normal((256, 256)) / 256)


def decode(number):
    noise = tf.random.uniform((3, 12_000), seed=1) + tf.cast(number, tf.float32)
    return tf.reduce_mean(tf.sort(noise, axis=1), axis=0)


@tf.function
def step(images):
    square = SQUARE + tf.reduce_mean(images)
    for _ in range(10):
        square = tf.tanh(square @ SQUARE)
    return tf.reduce_mean(square)


@pytest.mark.tfperf(max_epoch_gap="80 ms")
def test_broken(tf_profile):
    data = tf.data.Dataset.range(900).map(decode, num_parallel_calls=2).skip(600)
    tf_profile(step, data.batch(16, drop_remainder=True).prefetch(2), warmup=18, steps=120)


@pytest.mark.tfperf(max_epoch_gap="80 ms")
def test_fixed(tf_profile):
    data = tf.data.Dataset.range(900).skip(600).map(decode, num_parallel_calls=2)
    tf_profile(step, data.batch(16, drop_remainder=True).prefetch(2), warmup=18, steps=120)
