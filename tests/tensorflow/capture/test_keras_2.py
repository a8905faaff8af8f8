"""Keras 2 (`tf_keras`): every Keras form, and what `restore=` puts back."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.capture.keras_data import libraries_in_use, library_of
from pytest_tfperf.errors import CaptureError

tf_keras = pytest.importorskip(
    "tf_keras", reason="Keras 2 is not installed: pip install --no-deps 'tf_keras==2.21.*'"
)

pytestmark = pytest.mark.nightly

X, Y = np.ones((64, 3), "float32"), np.ones((64, 1), "float32")


def model_of(optimizer="sgd", **compiled):
    model = tf_keras.Sequential(
        [tf_keras.Input((3,)), tf_keras.layers.BatchNormalization(), tf_keras.layers.Dense(1)]
    )
    model.compile(optimizer, "mse", **compiled)
    return model


def test_the_library_of_a_model_is_that_of_its_classes():
    class Own(tf_keras.Model):
        pass

    assert library_of(Own()) is tf_keras
    assert library_of(tf_keras.optimizers.legacy.Adam()) is tf_keras
    assert library_of(keras.Sequential()) is keras
    assert library_of(tf.Module()) is None
    assert libraries_in_use() == [keras, tf_keras]


def test_fit_ends_when_the_windows_are_full_and_counts_its_own_steps(profile):
    result = profile.fit(
        model_of(jit_compile=True),
        X,
        Y,
        batch_size=8,
        epochs=40,
        verbose=0,
        validation_data=(X[:24], Y[:24]),
    )
    assert isinstance(result.result, tf_keras.callbacks.History)
    assert len(result.result.epoch) < 40
    assert "val_loss" in result.result.history
    assert {step.name.split()[0] for step in result.steps} == {"train"}
    assert (len(result.steps), result.retraces, result.xla_compiles) == (6, 0, 0)
    assert (result.xla_clusters, result.xla_launches) == (1, 1)
    assert result.workload == {
        "inputs": ["float32[?,3]", "float32[?,1]"],
        "batch": 8,
        "steps_per_execution": 1,
        "replicas": 1,
    }


def test_steps_per_execution_divides_counts(profile):
    model = model_of(jit_compile=True, steps_per_execution=4)
    result = profile.fit(model, X, Y, batch_size=2, epochs=9, verbose=0)
    assert (result.xla_clusters, result.xla_launches) == (1, 1)
    assert result.workload["steps_per_execution"] == 4


def test_evaluate_and_predict_run_to_their_end(profile):
    """Keras 2 has no flag that ends them."""
    model = model_of()
    evaluated = profile.evaluate(model, X, Y, batch_size=2, verbose=0, name="evaluate")
    assert evaluated.result == pytest.approx(model.evaluate(X, Y, verbose=0), rel=1e-4)
    uncompiled = tf_keras.Sequential([tf_keras.Input((3,)), tf_keras.layers.Dense(1)])
    predicted = profile.predict(uncompiled, X, batch_size=2, verbose=0, name="predict")
    assert predicted.result.shape == (64, 1)
    assert predicted.workload["steps_per_execution"] == 1
    for one in (evaluated, predicted):
        assert one.step_time > 0
        assert one.retraces == 0
        assert one.ended is None


@pytest.mark.parametrize(
    "optimizer",
    [
        tf_keras.optimizers.Adam,
        tf_keras.optimizers.legacy.Adam,
        lambda: tf_keras.mixed_precision.LossScaleOptimizer(tf_keras.optimizers.Adam()),
    ],
    ids=["adam", "legacy", "loss scale"],
)
def test_models_and_optimizers_are_restored(profile, optimizer):
    model = model_of(optimizer())
    before = [variable.numpy() for variable in model.variables]
    profile.fit(model, X, Y, batch_size=8, epochs=9, verbose=0, restore=[model])
    assert all(
        (variable.numpy() == value).all()
        for variable, value in zip(model.variables, before, strict=True)
    )
    assert model.optimizer.iterations.numpy() == 0
    profile.fit(
        model, X, Y, batch_size=8, epochs=9, verbose=0, restore=model.optimizer, name="again"
    )
    assert model.optimizer.iterations.numpy() == 0


@pytest.mark.parametrize("module", [tf_keras.optimizers, tf_keras.optimizers.legacy])
def test_an_optimizer_that_is_not_built_is_refused(profile, module):
    with pytest.raises(CaptureError, match="restore= needs a built optimizer"):
        profile.fit(model_of(), X, Y, verbose=0, restore=module.Adam())


def test_callback_that_runs_the_profiler_is_refused_by_name(profile):
    class Profiling(tf_keras.callbacks.TensorBoard):
        """Act like TensorBoard(profile_batch=3), without the tensorboard package."""

        def __init__(self):
            tf_keras.callbacks.Callback.__init__(self)
            self._start_batch = 3

    with pytest.raises(CaptureError, match=r"TensorBoard\(profile_batch=…\)"):
        profile.fit(model_of(), X, Y, verbose=0, callbacks=[Profiling()])
