"""
tensorflow/tensorflow#38628: the first call of a decoder takes very long, since AutoGraph unrolls its loop over `range`.

Cause: a Python loop is traced iteration by iteration: 600 copies of the body, which Grappler then optimises. Remedy: loop over
`tf.range` (or tf.while_loop), which traces the body once. By hand: 6 s, against 0.15 s.
"""

import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "first_step_time",
    "where": r"(?i)trac.*(unrolled_decoder\.py:\d+|decode|\d+ (ops|nodes|times))|(unrolled_decoder\.py:\d+|decode).*trac",
    "try": r"(?i)tf\.range|tf\.while_loop|while loop|unroll",
    "never": r"(?i)compilation cache|larger batch",
}

KERNEL = tf.Variable(tf.random.normal((16, 16)) / 4)
X = [tf.ones((4, 16))] * 4


def cell(state):
    gate = tf.sigmoid(state @ KERNEL)
    return gate * tf.tanh(state @ KERNEL) + (1 - gate) * tf.nn.softplus(state)


@tf.function
def decode(state):
    for _ in range(600):
        state = cell(state)
    return state


@tf.function
def decode_by_while(state):
    for _ in tf.range(600):
        state = cell(state)
    return state


@pytest.mark.tfperf(max_first_step_time="1 s")
def test_broken(tf_profile):
    tf_profile(decode, X)


@pytest.mark.tfperf(max_first_step_time="1 s")
def test_fixed(tf_profile):
    tf_profile(decode_by_while, X)
