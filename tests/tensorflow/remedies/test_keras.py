"""Remedies of Keras' loops: of their data and of `compile`, with the model as it was behind them."""

from contextlib import nullcontext

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
BESIDE = lambda _: nullcontext()  # noqa: E731 - no verdict here is of a time


def model_and_data():
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("adam", "mse", jit_compile=False)
    data = tf.data.Dataset.range(40).map(lambda n: (tf.fill([4], tf.cast(n, tf.float32)), [1.0, 0]))
    return model, data.batch(4)


def call_of(model, method, data):
    keras_call = KerasCall.of(model, method, (data,), {})
    return Call(
        step=keras_call.bound,
        data=data,
        profile=Profile(name="", metrics={}),
        framework=TENSORFLOW,
        keras=keras_call,
    )


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
    call = call_of(model, method, data)
    assert of_keras.can_be_tried(call.keras)
    wanted = (of_input.Parallel(), of_input.NoInput(), *of_keras.REMEDIES)
    found = {one.remedy: one for one in try_remedies(call, 120.0, remedies=wanted)}
    assert all(one.speedup is not None for one in found.values()), found
    together = found["compile(steps_per_execution=8)"]
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


@pytest.mark.parametrize("place", ["first", "last"])
def test_steps_that_run_together_are_counted_by_calls_of_the_callback(place, monkeypatch):
    """Keras 3.10 passes the first step of a call to callbacks, and 3.15 the last one."""
    import keras

    ended = keras.callbacks.CallbackList.on_train_batch_end
    sizes = []

    class Counted(of_keras.KerasTurns):
        def _loop(self, n, callbacks):
            sizes.append(n)
            return super()._loop(n, callbacks)

    def on_train_batch_end(self, batch, logs=None):
        ended(self, batch - (model.steps_per_execution - 1 if place == "first" else 0), logs)

    monkeypatch.setattr(keras.callbacks.CallbackList, "on_train_batch_end", on_train_batch_end)
    for own, size in ((1, 1), (1, 8), (5, 5), (5, 8)):
        model, data = model_and_data()
        model.steps_per_execution = own
        call = call_of(model, "fit", data)
        if size != own:
            call = of_keras.Together().apply(call)
        turns = Counted(call)
        turns.timed, turns.untimed = 11, 3
        assert turns.turn() > 0
        assert sizes[-1] % size == 0
        assert sizes[-1] >= 14
        turns.first_outputs(3)
        assert sizes[-1] == {1: 8, 5: 40}[own]


def test_arrays_and_other_backends_are_not_tried():
    model, _ = model_and_data()
    call = KerasCall.of(model, "fit", (np.zeros((4, 4)), np.zeros((4, 2))), {})
    assert not of_keras.can_be_tried(call)


def test_layers_in_bfloat16_are_of_a_model_made_anew(monkeypatch, tmp_path):
    import keras

    def own_loss(wanted, found):
        return keras.ops.mean(keras.ops.square(wanted - found))

    inner = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, activation="relu")])
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), inner])
    model.add(keras.layers.Dense(2))
    model.compile("adam", own_loss, metrics=["mae"], jit_compile=False)
    data = tf.data.Dataset.range(40).map(lambda n: (tf.fill([4], tf.cast(n, tf.float32)), [1.0, 0]))
    model.fit(data.batch(4), verbose=0, shuffle=False)
    weights = [np.array(one) for one in model.get_weights()]
    call = call_of(model, "fit", data.batch(4))
    flags = tmp_path / "cpuinfo"
    flags.write_text("flags : fpu avx512_bf16")
    monkeypatch.setattr(of_keras, "_CPU", flags)
    assert of_keras.Bfloat16().applies(call)
    changed = of_keras.Bfloat16().apply(call).keras.model
    first, within, last = changed.layers
    assert {one.compute_dtype for one in (first, within.layers[0], last)} == {"bfloat16"}
    for one, before in zip(changed.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(one, before)
    for one, before in zip(changed.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), before.numpy())
    [found] = try_remedies(call, 1.0, exclusive=BESIDE, remedies=[of_keras.Bfloat16()])
    assert found.outputs.startswith("step 1: ")
    assert "differs by" in found.outputs
    assert not found.keeps_outputs
    for one, before in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(one, before)
    flags.write_text("flags : fpu avx2")
    assert not of_keras.Bfloat16().applies(call)


def test_a_subclassed_model_is_not_made_anew(monkeypatch):
    import keras

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(2)

        def call(self, x):
            return self.dense(x)

    model = Own()
    model.compile("sgd", "mse")
    _, data = model_and_data()
    model.fit(data, verbose=0, shuffle=False)
    monkeypatch.setattr(of_keras, "_has_bfloat16", lambda: True)
    call = call_of(model, "fit", data)
    [found] = try_remedies(call, 1.0, exclusive=BESIDE, remedies=[of_keras.Bfloat16()])
    assert found.why == ("could not be tried: a subclassed model is not made anew from its config")
