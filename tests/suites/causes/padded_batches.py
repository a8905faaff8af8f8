"""
QData/TextAttack#737 (also domerin0/neural-sentiment#9): all texts are padded to the longest length that the model supports.

Cause: texts of 10 to 40 tokens in batches of 256 columns: nine tenths of the elements are padding. Remedy: pad to the longest text of
the batch, with batches of similar lengths (bucket_by_sequence_length).
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "batch_padding",
    "where": r"(?i)padded_batch|256",
    "try": r"(?i)bucket|longest|each batch|padded_batch|per batch",
    "never": r"(?i)multiple of 128|drop_remainder",
}

RANDOM = np.random.default_rng(0)
TEXTS = [RANDOM.integers(1, 500, RANDOM.integers(10, 40)).astype("int32") for _ in range(640)]


def batches(padded_to):
    texts = tf.data.Dataset.from_generator(
        lambda: iter(TEXTS), output_signature=tf.TensorSpec((None,), tf.int32)
    )
    if padded_to is None:
        lengths = {"bucket_boundaries": [16, 22, 28, 34], "bucket_batch_sizes": [16] * 5}
        texts = texts.bucket_by_sequence_length(tf.size, **lengths)
    else:
        texts = texts.padded_batch(16, padded_shapes=(padded_to,))
    return (
        texts.map(lambda tokens: (tokens, tf.zeros((tf.shape(tokens)[0], 1)))).cache().prefetch(4)
    )


def train(tf_profile, padded_to):
    layers = keras.layers
    embedding = layers.Embedding(500, 16, mask_zero=True)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            embedding,
            layers.GlobalAveragePooling1D(),
            layers.Dense(1),
        ]
    )
    model.compile("sgd", "mse")
    tf_profile.fit(model, batches(padded_to), epochs=20, verbose=0)


@pytest.mark.tfperf(max_batch_padding="35%")
def test_broken(tf_profile):
    train(tf_profile, 256)


@pytest.mark.tfperf(max_batch_padding="35%")
def test_fixed(tf_profile):
    train(tf_profile, None)
