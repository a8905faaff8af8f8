"""Profiles of small steps: compiled, of a Keras fit, of a loop, and one that fails its limit."""

import keras
import numpy as np
import pytest
import tensorflow as tf

WEIGHTS = tf.Variable(tf.ones((64, 64)) * 0.01)
DATA = tf.data.Dataset.from_tensor_slices(np.ones((2048, 64), "float32")).repeat(8)


@tf.function(jit_compile=True)
def train(x):
    WEIGHTS.assign(tf.tanh(tf.transpose(x) @ x))
    return tf.reduce_sum(WEIGHTS)


@tf.function
def step(x):
    return train(x) + tf.cast(tf.size(tf.unique(tf.reshape(x, [-1]))[0]), tf.float32)


@pytest.mark.tfperf(max_retraces=0, max_regression="60%")
def test_compiled(tf_profile):
    batches = DATA.map(lambda x: x * 2).batch(32)
    tf_profile(step, batches)


@pytest.mark.tfperf(max_input_bound="99%", max_regression="60%")
def test_fit(tf_profile):
    model = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = DATA.map(lambda x: (x, x[:1])).batch(64)
    tf_profile.fit(model, data, epochs=1, verbose=0)


@pytest.mark.tfperf(max_retraces=0, max_regression="60%")
def test_loop(tf_profile):
    for x in tf_profile.steps(DATA.batch(16)):
        train(x)


@pytest.mark.tfperf(max_eager_ops=0)
def test_eager(tf_profile):
    tf_profile(lambda x: tf.reduce_sum(x @ x), [tf.ones((32, 32))] * 200)
