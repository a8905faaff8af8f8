"""
tensorflow/tensorflow#47090, #30646: training stands still at the start of each epoch.

Cause: `shuffle` fills its buffer of 800 decoded images before it gives the first, again in each epoch.
Remedy: shuffle what is small (indices, file names) before the decoding. By hand: 1.2 to 2 s between epochs, against 40 to 150 ms.
Up to 300 ms of it are TensorFlow's freeing of the old iterator.
"""

import pytest
import tensorflow as tf
from _step import step

EXPECTED = {
    "unmet": "the pause is the first next() of an epoch, which is a wait for input and no part of epoch_gap",
    "metric": "epoch_gap",
    "where": r"(?i)shuffle.*(buffer|800|fill)|(buffer|fill).*shuffle",
    "try": r"(?i)shuffle.*(before|earlier|names|indices|ind(ex|ices)|small)|(smaller|less).*(buffer|shuffle)|reshuffle|repeat",
    "never": r"(?i)larger batch|jit_compile",
}


def decode(number):
    noise = tf.random.stateless_uniform((3, 12_000), tf.stack([number, number]))
    return tf.reduce_mean(tf.sort(noise, axis=1), axis=0)


def images():
    return tf.data.Dataset.range(800)


@pytest.mark.tfperf(max_epoch_gap="450 ms")
def test_broken(tf_profile):
    data = images().map(decode).shuffle(800).batch(16).prefetch(2)
    tf_profile(step, data, warmup=20, steps=110)


@pytest.mark.tfperf(max_epoch_gap="450 ms")
def test_fixed(tf_profile):
    data = images().shuffle(800).map(decode).batch(16).prefetch(2)
    tf_profile(step, data, warmup=20, steps=110)
