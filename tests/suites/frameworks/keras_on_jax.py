"""Keras loops on the JAX backend."""

import os

os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # convolutions compile in a third of the time

import keras
import numpy as np
import pytest

X = np.random.default_rng(0).random((256, 28, 28, 1), "float32")
Y = np.arange(256) % 10
FEW = {"warmup": 3, "trace_steps": 3}


def convnet():
    convolution = [keras.layers.Conv2D(8, 3, activation="relu"), keras.layers.MaxPooling2D()]
    return classifier(*convolution, optimizer="adam")


def classifier(*layers, optimizer="sgd", **how):
    """A model that XLA compiles faster than one with convolutions."""
    last = [keras.layers.Flatten(), keras.layers.Dense(10, activation="softmax")]
    model = keras.Sequential([keras.layers.Input((28, 28, 1)), *layers, *last])
    model.compile(optimizer, "sparse_categorical_crossentropy", **how)
    return model


def test_fit(tf_profile):
    found = tf_profile.fit(convnet(), X, Y, batch_size=32, epochs=6, verbose=0, **FEW)
    assert (found.xla_launches, found.xla_compiles, found.retraces, found.eager_ops) == (1, 0, 0, 0)
    assert found.value("throughput").detail["examples_per_step"] == 32
    assert found.value("input_wait").number is not None
    # the forward pass alone multiplies this; the gradients of both layers add to it
    forward = 32 * (2 * 26 * 26 * 8 * 9 + 2 * 13 * 13 * 8 * 10)
    assert forward < found.value("flops").detail["matmul_and_convolution"] < 4 * forward


def test_a_model_that_ran_before_has_no_first_step(tf_profile):
    model = classifier()
    model.fit(X, Y, batch_size=32, verbose=0)
    found = tf_profile.fit(model, X, Y, batch_size=32, epochs=5, verbose=0, **FEW)
    assert "had been traced before" in found.value("first_step_time").why


@pytest.mark.parametrize("method", ["evaluate", "predict"])
def test_other_loops(tf_profile, method):
    data = (X, Y) if method == "evaluate" else (X,)
    found = getattr(tf_profile, method)(convnet(), *data, batch_size=8, verbose=0, **FEW)
    assert (found.xla_launches, found.xla_compiles) == (1, 0)


def test_a_smaller_last_batch_compiles_again(tf_profile):
    found = tf_profile.fit(
        classifier(), X[:240], Y[:240], batch_size=64, epochs=12, verbose=0, **FEW
    )
    assert found.xla_compiles == found.retraces == 1
    assert "f32[64,28,28,1] → f32[48,28,28,1]" in found.value("retraces").detail["where"]


def test_several_steps_of_an_execution(tf_profile):
    model = classifier(steps_per_execution=4)
    found = tf_profile.fit(model, X, Y, batch_size=8, epochs=6, verbose=0, **FEW)
    assert found.workload["steps_per_execution"] == 4
    assert found.step_time > 0


def test_without_jit_ops_run_one_by_one(tf_profile):
    model = classifier(jit_compile=False)
    found = tf_profile.predict(model, X, batch_size=8, verbose=0, **FEW)
    assert found.eager_ops > 3


def test_the_model_is_restored(tf_profile):
    model = classifier()
    before = model.get_weights()
    tf_profile.fit(model, X, Y, batch_size=32, epochs=4, verbose=0, restore=model, **FEW)
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))


@pytest.mark.tfperf(max_retraces=0, max_xla_compiles=0)
def test_the_marker_alone():
    classifier().fit(X, Y, batch_size=32, epochs=4, verbose=0)
