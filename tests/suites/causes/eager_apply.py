"""
keras-team/keras#17668 (also tensorflow/tensorflow#59961): in a loop of one's own, `optimizer.apply_gradients` is slower than the model.

Cause: loss and gradients are in a tf.function, the update is outside of it and runs op by op for each variable. Remedy: put
`apply_gradients` into the tf.function.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "eager_ops",
    "where": r"(?i)eager_apply\.py:\d+|apply_gradients|adam",
    "try": r"(?i)(apply_gradients|optimi[sz]er|update|them).*tf\.function",
    "never": r"(?i)run_eagerly|larger batch",
}

X, Y = np.ones((32, 16), "float32"), np.zeros((32, 1), "float32")


def training(wrap_all):
    model = keras.Sequential(
        [keras.Input((16,)), *(keras.layers.Dense(16) for _ in range(6)), keras.layers.Dense(1)]
    )
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)

    @tf.function
    def gradients(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        return tape.gradient(loss, model.trainable_variables)

    def step(x, y):
        optimizer.apply_gradients(zip(gradients(x, y), model.trainable_variables, strict=True))

    return tf.function(step) if wrap_all else step


@pytest.mark.tfperf(max_eager_ops=4)
def test_broken(tf_profile):
    tf_profile(training(wrap_all=False), [(X, Y)] * 4)


@pytest.mark.tfperf(max_eager_ops=4)
def test_fixed(tf_profile):
    tf_profile(training(wrap_all=True), [(X, Y)] * 4)
