"""
keras-team/keras-io#250: the update of the target network makes a DDPG agent slow.

Cause: `target.assign(tau * weight + (1 - tau) * target)` runs op by op from Python for each of 14 variables. Remedy: a tf.function around
the update. By hand: 14 × 4 or more ops from Python in each step, against none.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "eager_ops",
    "where": r"(?i)eager_target_network\.py:\d+|move_towards",
    "try": r"(?i)tf\.function",
    "never": r"(?i)run_eagerly|larger batch|apply_gradients",
}

X, Y = np.ones((32, 16), "float32"), np.zeros((32, 1), "float32")


def network():
    return keras.Sequential(
        [keras.Input((16,)), *(keras.layers.Dense(16) for _ in range(6)), keras.layers.Dense(1)]
    )


def move_towards(targets, weights, tau=0.005):
    for target, weight in zip(targets, weights, strict=True):
        target.assign(tau * weight + (1 - tau) * target)


def training(wrap):
    online, target = network(), network()
    rate = 0.01
    update = wrap(lambda: move_towards(target.variables, online.variables))

    @tf.function
    def train(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((online(x) - y - 0.99 * target(x)) ** 2)
        gradients = tape.gradient(loss, online.trainable_variables)
        for variable, gradient in zip(online.trainable_variables, gradients, strict=True):
            variable.assign_sub(rate * gradient)

    def step(x, y):
        train(x, y)
        update()

    return step


@pytest.mark.tfperf(max_eager_ops=4)
def test_broken(tf_profile):
    tf_profile(training(lambda update: update), [(X, Y)] * 4)


@pytest.mark.tfperf(max_eager_ops=4)
def test_fixed(tf_profile):
    tf_profile(training(tf.function), [(X, Y)] * 4)
