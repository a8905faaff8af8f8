"""
tensorflow/tensorflow#43702: a search over hyperparameters builds and trains a model in each trial, and memory grows.

Cause: each trial makes a model with its own train step, whose traces TensorFlow and Keras keep. Remedy: build and compile the model
once and reset its weights, or run each trial in a process of its own. By hand: 1 MiB a trial, against nothing.
"""

import keras
import numpy as np
import pytest

EXPECTED = {
    "metric": "memory_growth",
    "where": r"(?i)model|trace|tf\.function|one_step_on|train_function|graph",
    "try": r"(?i)(model|tf\.function|function).*(once|outside|before)|(once|outside|before).*(model|tf\.function|function)|process of its own",
    "never": r"(?i)list of losses",
}

X, Y = np.ones((32, 8), "float32"), np.zeros((32, 1), "float32")


def build():
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    return model


@pytest.mark.tfperf(max_memory_growth="100 KiB")
def test_broken(tf_profile):
    tf_profile(lambda: build().train_on_batch(X, Y), warmup=4, trace_steps=4)


@pytest.mark.tfperf(max_memory_growth="100 KiB")
def test_fixed(tf_profile):
    model = build()
    start = model.get_weights()

    def trial():
        model.set_weights(start)
        model.train_on_batch(X, Y)

    tf_profile(trial, warmup=4, trace_steps=4)
