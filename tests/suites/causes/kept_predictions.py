"""
tensorflow/tensorflow#34606: memory grows in a loop that appends each prediction to a list.

Cause: the list keeps the tensors of all steps: 256 × 1,000 floats, 1,000 KiB a step. Remedy: keep what is needed of them (a number),
or write them away.
"""

import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "memory_growth",
    "where": r"(?i)(list|kept|predictions|tensors?|EagerTensor|float32\[256,1000\])",
    "try": r"(?i)list|keeps? (tensors|objects|predictions)|numpy\(\)|float\(",
}

WEIGHTS = tf.random.normal((32, 1000))
BATCHES = [tf.random.normal((256, 32))] * 4


@tf.function
def predict(batch):
    return tf.nn.softmax(batch @ WEIGHTS)


def predicting(keep):
    predictions = []

    def step(batch):
        predictions.append(keep(predict(batch)))

    return step


@pytest.mark.tfperf(max_memory_growth="100 KiB")
def test_broken(tf_profile):
    tf_profile(predicting(lambda prediction: prediction), BATCHES)


@pytest.mark.tfperf(max_memory_growth="100 KiB")
def test_fixed(tf_profile):
    tf_profile(predicting(lambda prediction: float(tf.reduce_mean(prediction))), BATCHES)
