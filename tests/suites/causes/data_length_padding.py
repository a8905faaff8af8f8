"""
TensorSpeech/TensorFlowTTS#527: batches of utterances are mostly padding.

Cause: short and long sequences are in one batch, and `padded_batch` fills each up to the longest.
Remedy: `bucket_by_sequence_length`. By hand: 67 % of the elements are padding, against none.
"""

import numpy as np
import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "batch_padding",
    "where": r"(?i)(\[16,\s*\d+|padded_batch|padded|sequence|length|zeros)",
    "try": r"(?i)bucket|(similar|same|sort).*length",
    "never": r"(?i)drop_remainder|multiples? of 128",
}
LENGTHS = np.random.default_rng(0).permutation(np.r_[np.full(480, 20), np.full(160, 200)])


@tf.function(reduce_retracing=True)
def step(rows):
    return tf.reduce_sum(tf.tanh(tf.cast(rows, tf.float32)))


def sequences():
    data = tf.data.Dataset.from_tensor_slices(LENGTHS)
    return data.map(lambda length: tf.range(1, 1 + length - length // 10))


@pytest.mark.tfperf(max_batch_padding=0.3)
def test_broken(tf_profile):
    tf_profile(step, sequences().padded_batch(16).prefetch(2))


@pytest.mark.tfperf(max_batch_padding=0.3)
def test_fixed(tf_profile):
    data = sequences().bucket_by_sequence_length(tf.size, [32], [16, 16])
    tf_profile(step, data.prefetch(2))
