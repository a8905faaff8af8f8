"""
tensorflow/tensorflow#32157: training slows down since the train step takes the epoch and step number, for its summaries.

Cause: the number is a Python number, so tf.function traces again for each new value. Remedy: pass it as a tensor, or count in a
tf.Variable.
"""

import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "retraces",
    "where": r"(?i)train_step.*\bnumber\b",
    "try": r"(?i)(as a|pass.*) tensors?|tf\.constant|tf\.Variable",
    "never": r"(?i)reduce_retracing|shapes constant|create the tf\.function once",
}

WEIGHTS = tf.Variable(tf.random.normal((16, 1)))
BATCHES = [tf.random.normal((8, 16))] * 4


@tf.function
def train_step(batch, number):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((batch @ WEIGHTS) ** 2)
    WEIGHTS.assign_sub(0.01 * tape.gradient(loss, WEIGHTS))
    return loss / (1.0 + tf.cast(number, tf.float32))


def loop(tf_profile, number_of):
    for number, batch in enumerate(tf_profile.steps(BATCHES)):
        train_step(batch, number_of(number))


@pytest.mark.tfperf(max_retraces=0)
def test_broken(tf_profile):
    loop(tf_profile, int)


@pytest.mark.tfperf(max_retraces=0)
def test_fixed(tf_profile):
    loop(tf_profile, tf.constant)
