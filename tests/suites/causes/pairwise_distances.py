"""
SeldonIO/alibi-detect#213 (also tensorflow/tensorflow#30659): distances of all pairs of points run out of memory.

Cause: `x[:, None] - x[None]` makes an array of pairs × features: 1500 × 1500 × 32 floats are 288 MB. Remedy: the product of matrices
(|a|² + |b|² − 2ab), or parts of the points. By hand: 288 MB or more, against 18 MB.
"""

import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "peak_memory",
    "where": r"(?i)1,?500,\s?1,?500,\s?32|pairwise_distances\.py:\d+",
    "try": r"(?i)matmul|product|smaller (parts|blocks|chunks|pieces)|(parts|blocks|chunks) of|without the array|broadcast",
}

POINTS = [tf.random.normal((1500, 32))] * 4


@tf.function
def by_broadcast(x):
    return tf.reduce_sum((x[:, None] - x[None]) ** 2, axis=2)


@tf.function
def by_product(x):
    squares = tf.reduce_sum(x**2, axis=1)
    return squares[:, None] + squares - 2 * tf.matmul(x, x, transpose_b=True)


@pytest.mark.tfperf(max_peak_memory="110 MiB")
def test_broken(tf_profile):
    tf_profile(by_broadcast, POINTS)


@pytest.mark.tfperf(max_peak_memory="110 MiB")
def test_fixed(tf_profile):
    tf_profile(by_product, POINTS)
