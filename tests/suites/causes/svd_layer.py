"""
tensorflow/tensorflow#13222 (also #13603): a layer divides its kernel by the largest singular value, from `tf.linalg.svd` in each step.

Cause: the decomposition of 384 × 384 takes almost the whole step, on one core. Remedy: estimate the value by power iteration
(keras.layers.SpectralNormalization), or only every n-th step. By hand: 25 ms, against 2 ms.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "step_time",
    "where": r"(?i)svd.*(svd_layer\.py:\d+|normali[sz]ed)|(svd_layer\.py:\d+|normali[sz]ed).*\bsvd",
    "try": r"(?i)power iteration|spectral|approximat|less often|fewer|smaller|every|outside",
    "never": r"(?i)larger batch|shapes constant|shapes and Python arguments constant|16 bits|steps_per_execution",
}

X, Y = np.ones((512, 384), "float32"), np.zeros((512, 384), "float32")


class Normalized(keras.layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(384, 384), name="kernel")

    def call(self, x):
        largest = tf.linalg.svd(tf.stop_gradient(self.kernel), compute_uv=False)[0]
        return tf.matmul(x, self.kernel / largest)


class Iterated(Normalized):
    def call(self, x):
        kernel = tf.stop_gradient(self.kernel)
        vector = tf.ones((384, 1))
        for _ in range(3):
            vector = tf.math.l2_normalize(
                tf.matmul(kernel, tf.matmul(kernel, vector), transpose_a=True)
            )
        return tf.matmul(x, self.kernel / tf.norm(tf.matmul(kernel, vector)))


def train(tf_profile, layer):
    model = keras.Sequential([keras.Input((384,)), layer])
    model.compile("sgd", "mse")
    tf_profile.fit(model, X, Y, batch_size=32, epochs=60, verbose=0)


@pytest.mark.tfperf(max_step_time="10 ms")
def test_broken(tf_profile):
    train(tf_profile, Normalized())


@pytest.mark.tfperf(max_step_time="10 ms")
def test_fixed(tf_profile):
    train(tf_profile, Iterated())
