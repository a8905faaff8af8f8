"""What takes the time between the epochs of a real Keras `fit`: callbacks and validation, by name."""

import time

import keras
import numpy as np
import pytest

pytestmark = [pytest.mark.full, pytest.mark.imports("keras")]

X, Y = np.ones((64, 3), "float32"), np.ones((64, 1), "float32")


class Slow(keras.callbacks.Callback):
    """A callback whose method takes its time, the load under test."""

    def __init__(self, method, work):
        super().__init__()
        self.chosen, self.work = method, work

    def on_epoch_begin(self, epoch, logs=None):
        self._work("on_epoch_begin")

    def on_epoch_end(self, epoch, logs=None):
        self._work("on_epoch_end")

    def on_test_end(self, logs=None):
        self._work("on_test_end")

    def _work(self, method):
        if method == self.chosen:
            self.work(self.model)


def wait(_):
    time.sleep(0.1)


def evaluate(model):
    model.evaluate(X, Y, batch_size=1, verbose=0)


def gap(profile, *callbacks, name="fit", **options):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    profiled = profile.fit(
        *(model, X, Y),
        name=name,
        **{"batch_size": 8, "epochs": 12, "verbose": 0, "callbacks": [*callbacks], **options},
    )
    return profiled.value("epoch_gap")


def test_the_method_of_a_callback_is_named_with_its_line_and_share(profile):
    for method in ("on_epoch_begin", "on_epoch_end"):
        found = gap(profile, Slow(method, wait), name=method)
        assert f"Keras callback Slow.{method} at test_epoch_work.py:" in found.detail["where"]
        assert found.detail["accounted"] > 0.15
        assert "every n-th epoch" in found.detail["try"]
        assert "validation" not in str(found.detail)


def test_a_validation_that_a_callback_runs_is_the_callbacks(profile):
    found = gap(profile, Slow("on_epoch_end", evaluate))
    assert found.detail["where"].startswith("Keras callback Slow.on_epoch_end at ")
    assert "validation" not in str(found.detail)


@pytest.mark.nightly  # which of the two takes longer is the machine's too
def test_the_validation_is_named_without_the_callbacks_in_it(profile):
    data = {"validation_data": (X, Y), "validation_batch_size": 1}
    found = gap(profile, name="alone", **data)
    assert found.detail["where"].startswith("validation takes ")
    assert "validation_freq=" in found.detail["try"]
    data["validation_batch_size"] = len(X)  # much shorter than the callback, on a busy machine too
    found = gap(profile, Slow("on_test_end", lambda _: time.sleep(1)), **data)
    assert found.detail["where"].startswith("Keras callback Slow.on_test_end at ")


def test_keras_own_callback_has_the_remedy_of_its_kind(profile, tmp_path, monkeypatch):
    save = keras.Model.save

    def slowly(*args, **kwargs):  # as to a slow disk
        time.sleep(0.1)
        return save(*args, **kwargs)

    monkeypatch.setattr(keras.Model, "save", slowly)

    class Saving(keras.callbacks.ModelCheckpoint):
        """A user's class of Keras' method."""

    path = str(tmp_path / "model.keras")
    for saving in (keras.callbacks.ModelCheckpoint(path), Saving(path)):
        found = gap(profile, saving, name=type(saving).__name__)
        assert f"{type(saving).__name__}.on_epoch_end takes " in found.detail["where"]
        assert "save_best_only=True" in found.detail["try"]
