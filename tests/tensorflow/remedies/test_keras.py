"""Remedies of Keras' loops: of their data and of `compile`, with the model as it was behind them."""

import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.capture.keras_data import KerasCall
from pytest_tfperf.frameworks.framework import TENSORFLOW
from pytest_tfperf.remedies import input as of_input
from pytest_tfperf.remedies import keras as of_keras
from pytest_tfperf.remedies.remedy import Call
from pytest_tfperf.remedies.trial import try_remedies
from pytest_tfperf.results import Profile

pytestmark = pytest.mark.full


def model_and_data():
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("adam", "mse", jit_compile=False)
    data = tf.data.Dataset.range(40).map(lambda n: (tf.fill([4], tf.cast(n, tf.float32)), [1.0, 0]))
    return model, data.batch(4)


@pytest.mark.parametrize(
    "method",
    [
        "fit",
        pytest.param("evaluate", marks=pytest.mark.nightly),
        pytest.param("predict", marks=pytest.mark.nightly),
    ],
)
def test_a_loop_of_keras_is_tried_and_left_as_it_was(method):
    model, data = model_and_data()
    model.fit(data, verbose=0, shuffle=False)
    weights, function = [np.array(one) for one in model.get_weights()], model.train_function
    history = model.history
    keras_call = KerasCall.of(model, method, (data,), {})
    call = Call(
        step=keras_call.bound,
        data=data,
        profile=Profile(name="", metrics={}),
        framework=TENSORFLOW,
        keras=keras_call,
    )
    assert of_keras.can_be_tried(keras_call)
    wanted = (of_input.Parallel(), of_input.NoInput(), *of_keras.REMEDIES)
    found = {one.remedy: one for one in try_remedies(call, 120.0, remedies=wanted)}
    assert all(one.speedup is not None for one in found.values()), found
    together = found.pop("compile(steps_per_execution=8)")
    assert {found[name].outputs for name in found if name != "no input at all"} <= {
        "same",
        "within tolerance",
    }
    assert together.write == "model.compile(…, steps_per_execution=8)"
    for before, now in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(before, now)
    assert (model.steps_per_execution, model.jit_compile) == (1, False)
    assert model.train_function is function
    assert model.history is history


def test_arrays_and_other_backends_are_not_tried():
    model, _ = model_and_data()
    call = KerasCall.of(model, "fit", (np.zeros((4, 4)), np.zeros((4, 2))), {})
    assert not of_keras.can_be_tried(call)
