"""
tensorflow/tensorflow#81896: XLA compiles again for each length, though the function has an input signature with None.

Cause: the signature saves the traces, but an executable is for one shape: each new length is another compilation. Remedy: pad to one
length, or to a few (buckets).
"""

import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "xla_compiles",
    "where": r"(?i)encode.*(32,\s?\d+|f32\[32,\d+)",
    "try": r"(?i)\bpad|bucket",
    "never": r"(?i)reduce_retracing|input_signature|drop_remainder",
}

WEIGHTS = tf.Variable(tf.random.normal((32, 32)))


@tf.function(input_signature=[tf.TensorSpec((32, None))], jit_compile=True)
def encode(tokens):
    return tf.reduce_sum(tf.tanh(WEIGHTS @ tokens), axis=1)


LINES = [tf.ones((32, length)) for length in range(5, 100)]


@pytest.mark.tfperf(max_xla_compiles=0, max_retraces=0)
def test_broken(tf_profile):
    tf_profile(lambda line: encode(line), LINES)


@pytest.mark.tfperf(max_xla_compiles=0, max_retraces=0)
def test_fixed(tf_profile):
    tf_profile(lambda line: encode(tf.pad(line, [[0, 0], [0, 100 - line.shape[1]]])), LINES)
