"""
tensorflow/tensorflow#40517 (also #24774): `tf.map_fn` over the rows of a batch is slow.

Cause: a while loop in the graph runs a few small ops for each of 1,000 rows. Remedy: `tf.vectorized_map`, or ops on the whole batch.
By hand: 10 to 90 ms, against 0.3 ms.
"""

import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "step_time",
    "where": r"(?i)(while|loop|map_fn|1,?000 iterations).*loop_over_rows\.py:\d+|loop_over_rows\.py:\d+.*(while|loop|map_fn|1,?000 iterations)",
    "try": r"(?i)vectori[sz]|whole batch|all rows at once|batched op",
    "never": r"(?i)larger batch|shapes constant|16 bits|steps_per_execution",
}

ROWS = [tf.random.normal((1000, 16))] * 4


def scale(row):
    return tf.reduce_sum(tf.math.l2_normalize(row) * tf.math.sigmoid(row))


@pytest.mark.tfperf(max_step_time="2 ms")
def test_broken(tf_profile):
    tf_profile(tf.function(lambda rows: tf.map_fn(scale, rows)), ROWS)


@pytest.mark.tfperf(max_step_time="2 ms")
def test_fixed(tf_profile):
    tf_profile(tf.function(lambda rows: tf.vectorized_map(scale, rows)), ROWS)
