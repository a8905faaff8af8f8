"""Tests of what commits of Keras changed; benchmarks/keras_commits.py runs one of them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

PER_EXECUTION = 16


def dense_model(**options):
    layers = [keras.layers.Dense(16, activation="relu"), keras.layers.Dense(4)]
    model = keras.Sequential([keras.Input((16,)), *layers])
    model.compile("sgd", "mse", **options)
    return model


def arrays(n_batches):
    return np.ones((32 * n_batches, 16), "float32"), np.ones((32 * n_batches, 4), "float32")


@pytest.mark.tfperf(max_regression="5%")
def test_eager_layers(tf_profile):
    layers, x = [keras.layers.Activation("relu") for _ in range(20)], tf.ones((8, 8))

    def step():
        y = x
        for layer in layers:
            y = layer(y)
        return y

    tf_profile(step)


@pytest.mark.tfperf(max_regression="5%")
def test_predict(tf_profile):
    model, (x, _) = dense_model(steps_per_execution=PER_EXECUTION), arrays(20 * PER_EXECUTION)
    tf_profile.predict(model, x, batch_size=32, verbose=0)


@pytest.mark.tfperf(max_regression="5%")
def test_logs(tf_profile):
    x, y = arrays(300)
    model = dense_model(metrics=["mae", "mse", "cosine_similarity"])
    tf_profile.fit(model, x, y, batch_size=32, verbose=0)


@pytest.mark.tfperf(max_regression="5%")
def test_fit(tf_profile):
    model, (x, y) = dense_model(steps_per_execution=PER_EXECUTION), arrays(20 * PER_EXECUTION)
    tf_profile.fit(model, x, y, batch_size=32, verbose=0)
