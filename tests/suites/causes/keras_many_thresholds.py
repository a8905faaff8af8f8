"""
keras-team/keras#16809: metrics that are costly, such as AUC, are computed in each training step.

Cause: `AUC(multi_label=True, num_thresholds=40000)` of 50 labels updates and sums four tables of 40,000 × 50 numbers in each step, far more
than the model computes. Remedy: fewer thresholds, or the metric on validation data only. By hand: 31 ms,
against 1.5 ms with 50.
"""

import keras
import numpy as np
import pytest

EXPECTED = {
    "metric": "step_time",
    "where": r"(?i)\bauc|metric|num_thresholds",
    "try": r"(?i)threshold|metric",
    "never": r"(?i)larger batch|run_eagerly|steps_per_execution",
}

X = np.ones((640, 16), "float32")
Y = np.random.default_rng(0).integers(0, 2, (640, 50)).astype("float32")


def train(tf_profile, thresholds):
    auc = keras.metrics.AUC(num_thresholds=thresholds, multi_label=True, num_labels=50)
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(50, "sigmoid")])
    model.compile("sgd", "binary_crossentropy", metrics=[auc])
    tf_profile.fit(model, X, Y, batch_size=64, epochs=20, verbose=0)


@pytest.mark.tfperf(max_step_time="8 ms")
def test_broken(tf_profile):
    train(tf_profile, 40_000)


@pytest.mark.tfperf(max_step_time="8 ms")
def test_fixed(tf_profile):
    train(tf_profile, 50)
