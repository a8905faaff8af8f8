"""
keras-team/keras#4838 (also #2996): words are one-hot vectors that a Dense layer multiplies.

Cause: the product of 256 × 5,000 by 5,000 × 32 computes what is a look-up of 256 rows. Remedy: an Embedding layer, or tf.gather.
By hand: forwards 2 × 256 × 5,000 × 32 = 82 MFLOP, against next to none.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "flops",
    "where": r"(?i)(MatMul|dot|product|Dense).*(5,?000|words|one_hot_product\.py:\d+)|(5,?000|words).*(MatMul|dot|product)",
    "try": r"(?i)embedding|gather|look-?up",
    "never": r"(?i)mixed_bfloat16|16 bits",
}

X, Y = np.zeros((512, 1), "int32"), np.zeros((512, 1), "float32")


def train(tf_profile, *words):
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((1,), dtype="int32"), *words, layers.Flatten(), layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    tf_profile.fit(model, X, Y, batch_size=256, epochs=60, verbose=0)


@pytest.mark.tfperf(max_flops=20e6)
def test_broken(tf_profile):
    layers = keras.layers
    train(
        tf_profile,
        layers.Lambda(lambda x: tf.one_hot(x, 5000)),
        layers.Dense(32, use_bias=False, name="words"),
    )


@pytest.mark.tfperf(max_flops=20e6)
def test_fixed(tf_profile):
    train(tf_profile, keras.layers.Embedding(5000, 32))
