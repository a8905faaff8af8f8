"""
google-deepmind/acme#77 (also tensorflow/tensorflow#32276): memory grows in each step, until none is left, with a persistent GradientTape.

Cause: one persistent tape is opened around the loop, so it records the ops of all steps, and keeps their tensors. Remedy: a new tape in
each step, without `persistent=True`. By hand: 396 KiB a step, against none.
"""

import pytest
import tensorflow as tf

EXPECTED = {
    "unmet": "Python knows no owner of the memory that a tape holds in C++",
    "metric": "memory_growth",
    "where": r"(?i)tape|kept_records\.py:\d+|EagerTensor|float32\[",
    "try": r"(?i)tape",
    "never": r"(?i)retrac|reduce_retracing|callback",
}

BATCHES = [tf.ones((32, 64))] * 4


def training():
    weights = tf.Variable(tf.ones((64, 256)) / 64)

    @tf.function
    def loss(rows):
        return tf.reduce_mean(tf.tanh(tf.tanh(rows @ weights)))

    return weights, loss


@pytest.mark.tfperf(max_memory_growth="30 KiB")
def test_broken(tf_profile):
    weights, loss = training()
    with tf.GradientTape(persistent=True) as tape:
        for rows in tf_profile.steps(BATCHES):
            weights.assign_sub(0.01 * tape.gradient(loss(rows), weights))


@pytest.mark.tfperf(max_memory_growth="30 KiB")
def test_fixed(tf_profile):
    weights, loss = training()
    for rows in tf_profile.steps(BATCHES):
        with tf.GradientTape() as tape:
            value = loss(rows)
        weights.assign_sub(0.01 * tape.gradient(value, weights))
