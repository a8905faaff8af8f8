"""
tensorflow/tensorflow#44008, #28831: a validation set made by `skip` begins late.

Cause: `skip(1200)` decodes 1,200 images in each epoch and throws them away.
Remedy: `skip` before `map`, or files of its own. By hand: 2 to 3 s between epochs, against 50 to 280 ms.
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


@pytest.mark.tfperf(max_epoch_gap="700 ms")
def test_broken(tf_profile):
    data = tf.data.Dataset.range(1360).map(decode).skip(1200)
    tf_profile(step, data.batch(16, drop_remainder=True).prefetch(2), warmup=10, steps=40)


@pytest.mark.tfperf(max_epoch_gap="700 ms")
def test_fixed(tf_profile):
    data = tf.data.Dataset.range(1360).skip(1200).map(decode)
    tf_profile(step, data.batch(16, drop_remainder=True).prefetch(2), warmup=10, steps=40)
