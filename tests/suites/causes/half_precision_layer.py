"""
tensorflow/hub#466 (also huggingface/transformers#2004): mixed precision is on, but one layer computes in float32.

Cause: the layer's dtype is fixed in its code, whatever the policy says. Remedy: let the layer follow the policy: no cast to float32.
By hand: of 256 × 512 + 512 × 512 + 512 × 10 products, the 512 × 512 are in float32.
"""

import keras
import numpy as np
import pytest

EXPECTED = {
    "metric": "half_precision",
    "where": r"(?i)(encoder|half_precision_layer\.py:\d+).*float32|float32.*(encoder|half_precision_layer\.py:\d+)",
    "try": r"(?i)cast|compute_dtype|policy",
    "never": r"(?i)set_global_policy|set_dtype_policy",
}


class Encoder(keras.layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 512), name="kernel")

    def call(self, x):
        return keras.ops.relu(
            keras.ops.matmul(keras.ops.cast(x, "float32"), keras.ops.cast(self.kernel, "float32"))
        )


class Follower(Encoder):
    def call(self, x):
        return keras.ops.relu(keras.ops.matmul(x, self.kernel))


def train(encoder_class, tf_profile):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = keras.Sequential(
            [
                keras.Input((256,)),
                keras.layers.Dense(512, "relu"),
                encoder_class(),
                keras.layers.Dense(10),
                keras.layers.Activation("softmax", dtype="float32"),
            ]
        )
        model.compile("sgd", "sparse_categorical_crossentropy")
        x, y = np.ones((640, 256), "float32"), np.zeros(640, "int32")
        tf_profile.fit(model, x, y, batch_size=64, epochs=20, verbose=0)
    finally:
        keras.config.set_dtype_policy(before)


@pytest.mark.tfperf(min_half_precision="90%")
def test_broken(tf_profile):
    train(Encoder, tf_profile)


@pytest.mark.tfperf(min_half_precision="90%")
def test_fixed(tf_profile):
    train(Follower, tf_profile)
