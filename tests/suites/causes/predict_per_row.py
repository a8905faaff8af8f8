"""
tensorflow/tensorflow#44711 (also #33009, #40261): `model.predict` for each request is slow.

Cause: each call makes a dataset, traces its functions, makes an iterator and runs callbacks; the model itself takes below 1 ms.
Remedy: call the model (in a tf.function), `predict_on_batch`, or predict many rows at once. By hand: 40 to 60 ms, against 0.5 ms.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "step_time",
    "where": r"(?i)predict|MakeIterator|data_?adapter|new (tf\.data )?dataset",
    "try": r"(?i)call the model|model\(|predict_on_batch|many rows|several rows|one call of predict",
    "never": r"(?i)shapes constant|shapes and Python arguments constant|larger batches|prefetch\(|16 bits",
}

model = keras.Sequential(
    [keras.Input((32,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(4)]
)
ROWS = [np.ones((1, 32), "float32")] * 16


@pytest.mark.tfperf(latency=True, max_step_time="8 ms")
def test_broken(tf_profile):
    tf_profile(lambda row: model.predict(row, verbose=0), ROWS)


@pytest.mark.tfperf(latency=True, max_step_time="8 ms")
def test_fixed(tf_profile):
    served = tf.function(model, reduce_retracing=True)
    tf_profile(lambda row: served(row), ROWS)
