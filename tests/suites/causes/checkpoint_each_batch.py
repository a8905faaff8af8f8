"""
tensorflow/tensorflow#33163 (also jina-ai/finetuner#240): `ModelCheckpoint(save_freq=1)` saves the model after each batch.

Cause: `save_freq` counts batches, so a file of the whole model is written in each step. Remedy: `save_freq="epoch"`, or a larger
number. By hand: 40 ms, against 1.5 ms.
"""

import keras
import numpy as np
import pytest

EXPECTED = {
    "metric": "step_time",
    "where": r"(?i)ModelCheckpoint",
    "try": r"(?i)save_freq|less often|end of (an|each|the) epoch|every",
    "never": r"(?i)larger batches|shapes constant|shapes and Python arguments constant|16 bits|tf\.function",
}

X, Y = np.ones((640, 64), "float32"), np.zeros((640, 1), "float32")


def train(tf_profile, tmp_path, save_freq):
    layers = [keras.layers.Dense(64, "relu") for _ in range(12)]
    model = keras.Sequential([keras.Input((64,)), *layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    saver = keras.callbacks.ModelCheckpoint(tmp_path / "model.keras", save_freq=save_freq)
    tf_profile.fit(model, X, Y, batch_size=32, epochs=60, verbose=0, callbacks=[saver])


@pytest.mark.tfperf(max_step_time="10 ms")
def test_broken(tf_profile, tmp_path):
    train(tf_profile, tmp_path, 1)


@pytest.mark.tfperf(max_step_time="10 ms")
def test_fixed(tf_profile, tmp_path):
    train(tf_profile, tmp_path, "epoch")
