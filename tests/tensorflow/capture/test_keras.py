"""Keras loops: one call with the user's own arguments, and everything restored afterwards."""

import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers.profilers import profiler as new_profiler

from pytest_tfperf.advice import guides
from pytest_tfperf.capture.keras_data import KerasCall, examples_per_step, keras_workload
from pytest_tfperf.errors import CaptureError

pytestmark = pytest.mark.imports("keras")

X, Y = np.ones((64, 3), "float32"), np.ones((64, 1), "float32")


def model_of(**compiled):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", **compiled)
    return model


def hooks():
    names = (
        "on_train_begin",
        "on_train_batch_begin",
        "on_train_batch_end",
        "on_test_begin",
        "on_test_batch_end",
        "on_predict_batch_end",
    )
    return [vars(keras.callbacks.CallbackList)[name] for name in names]


class Recorder(keras.callbacks.Callback):
    """Record the calls of a user's callback."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def on_train_batch_begin(self, batch, logs=None):
        self.calls.append(("begin", batch))

    def on_train_batch_end(self, batch, logs=None):
        self.calls.append(("end", batch))

    def on_epoch_end(self, epoch, logs=None):
        self.calls.append(("epoch", sorted(logs)))

    def on_train_end(self, logs=None):
        self.calls.append(("over", None))


def test_fit_counts_its_own_steps_runs_user_callbacks_and_returns_the_result_of_keras(profile):
    recorder, before = Recorder(), hooks()
    result = profile.fit(
        model_of(jit_compile=True),
        X,
        Y,
        batch_size=8,
        epochs=40,
        verbose=0,
        callbacks=[recorder],
        validation_data=(X[:24], Y[:24]),
    )
    assert isinstance(result.result, keras.callbacks.History)
    assert "val_loss" in result.result.history
    assert recorder.calls[:2] == [("begin", 0), ("end", 0)]
    assert recorder.calls[-1] == ("over", None)
    batches = [call for call in recorder.calls if call[0] == "end"]
    assert (
        22 <= len(batches) < 320
    )  # the loop ended when the windows were full, measured again if the buffers had to settle
    assert len(batches) == result.value("retraces").detail["n_steps"] + 1  # the first step
    assert hooks() == before
    assert {step.name.split()[0] for step in result.steps} == {"train"}
    counts = (result.xla_clusters, result.xla_launches, result.xla_compiles, result.retraces)
    assert (*counts, result.eager_ops) == (1, 1, 0, 0, 0)
    assert result.workload == {
        "inputs": ["float32[?,3]", "float32[?,1]"],
        "batch": 8,
        "steps_per_execution": 1,
        "replicas": 1,
    }


def test_hooks_are_restored_when_the_loop_raises(profile):
    before = hooks()

    class Bad(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 5:
                raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        profile.fit(model_of(), X, Y, batch_size=8, epochs=9, verbose=0, callbacks=[Bad()])
    assert hooks() == before
    assert (
        profile.fit(model_of(), X, Y, batch_size=8, epochs=9, verbose=0, name="next").retraces == 0
    )


@pytest.mark.full
def test_partial_last_batch_compiles_once_more(profile):
    model = model_of(jit_compile=True)
    result = profile.fit(model, X[:60], Y[:60], batch_size=8, epochs=9, verbose=0)
    assert result.xla_compiles == 1
    assert result.value("xla_compiles").detail["n_epoch_ends"] >= 2


def test_steps_per_execution_divides_counts_and_times(profile):
    model = model_of(jit_compile=True, steps_per_execution=4)
    result = profile.fit(model, X, Y, batch_size=2, epochs=9, verbose=0)
    assert (result.xla_clusters, result.xla_launches) == (1, 1)
    assert result.workload["steps_per_execution"] == 4


@pytest.mark.filterwarnings("ignore:.*ran out of data")
@pytest.mark.filterwarnings("ignore:.*shuffle=True")
def test_a_dataset_of_unknown_length_leaves_no_phantom_step(profile):
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8).filter(lambda x, y: True)
    assert data.cardinality() == tf.data.UNKNOWN_CARDINALITY
    result = profile.fit(model_of(), data, epochs=40, verbose=0)  # windows may be measured again
    assert len(result.steps) == 6
    numbers = [int(step.name.removeprefix("train ")) for step in result.steps]
    assert numbers == list(range(numbers[0], numbers[0] + 6))
    assert (
        result.n_dropped <= 1
    )  # the one in which Keras found that the epoch was over, if that was traced


def test_evaluate_and_predict_return_their_results(profile):
    model = model_of()
    evaluated = profile.evaluate(model, X, Y, batch_size=2, verbose=0, name="evaluate")
    assert evaluated.result == pytest.approx(
        model.evaluate(X, Y, batch_size=2, verbose=0), rel=1e-4
    )
    predicted = profile.predict(model, X, batch_size=2, verbose=0, name="predict")
    assert predicted.result.shape == (2 * (predicted.value("retraces").detail["n_steps"] + 1), 1)
    assert {step.name.split()[0] for step in evaluated.steps} == {"test"}
    assert {step.name.split()[0] for step in predicted.steps} == {"predict"}


@pytest.mark.parametrize(
    "n_batches", [8, *(pytest.param(n, marks=pytest.mark.full) for n in (5, 21))]
)
def test_a_loop_with_fewer_batches_than_windows_gets_shorter_windows(profile, n_batches):
    x, y = np.ones((2 * n_batches, 3), "float32"), np.ones((2 * n_batches, 1), "float32")
    result = profile.evaluate(model_of(), x, y, batch_size=2, verbose=0)
    assert result.step_time > 0
    assert result.ended is None
    assert result.value("retraces").detail["n_steps"] == n_batches - 1


@pytest.mark.parametrize("method", ["predict", pytest.param("evaluate", marks=pytest.mark.full)])
def test_the_last_batch_counts(profile, method):
    """It is smaller than the others, and the probe: the windows have the batches before."""
    model = model_of(jit_compile=True)
    x, y = np.ones((81, 3), "float32"), np.ones((81, 1), "float32")
    data = (x,) if method == "predict" else (x, y)
    result = getattr(profile, method)(model, *data, batch_size=8, verbose=0)
    assert result.value("retraces").detail["n_steps"] == 10
    assert result.xla_compiles == 1


def test_callback_that_runs_the_profiler_is_refused_by_name(profile):
    class Profiling(keras.callbacks.TensorBoard):
        """Act like TensorBoard(profile_batch=3), without the tensorboard package."""

        def __init__(self):
            keras.callbacks.Callback.__init__(self)
            self._start_batch = 3

    with pytest.raises(
        CaptureError, match=r"fit received the callback TensorBoard\(profile_batch=…\)"
    ):
        profile.fit(model_of(), X, Y, 8, 1, 0, [Profiling()])


def test_loop_without_batches_is_an_error(profile):
    with pytest.raises(CaptureError, match="fit ran no batch"):
        profile.fit(model_of(), X, Y, epochs=0, verbose=0)


def test_models_and_optimizers_are_restored(profile):
    model = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(4),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(1),
        ]
    )
    model.compile("adam", "mse")
    before = [variable.numpy() for variable in model.variables]
    profile.fit(model, X, Y, batch_size=8, epochs=9, verbose=0, restore=model)
    assert all(
        (variable.numpy() == value).all()
        for variable, value in zip(model.variables, before, strict=True)
    )
    assert model.optimizer.iterations.numpy() == 0


def test_restore_needs_a_built_model(profile):
    with pytest.raises(CaptureError, match="restore= needs a built model"):
        profile.fit(model_of(), X, Y, verbose=0, restore=model_of())


@pytest.mark.full
def test_traced_window_has_its_own_batches_with_long_data(profile):
    for n_batches in (22, 23, 40, 120):
        x, y = np.ones((2 * n_batches, 3), "float32"), np.ones((2 * n_batches, 1), "float32")
        profiler = new_profiler({"warmup": 3, "trace_steps": 6})
        assert profiler.evaluate(model_of(), x, y, batch_size=2, verbose=0).retraces == 0
        assert len(profiler.profile.steps) >= 2
        assert profiler.profile.ended is None
        profiler.close()


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # Keras 3.5, of each epoch
def test_smaller_last_execution_counts_its_own_batches(profile):
    model = model_of(jit_compile=True, steps_per_execution=4)
    result = profile.fit(
        model, X[:36], Y[:36], batch_size=6, epochs=30, verbose=0
    )  # 4 and 2 batches an epoch
    assert (result.value("xla_launches").low(), result.value("xla_launches").high()) == (1, 1)


def test_throughput_counts_the_examples_in_the_batches(profile):
    result = profile.fit(model_of(), X[:40], Y[:40], batch_size=32, epochs=40, verbose=0)
    assert result.value("throughput").detail["examples_per_step"] == 20  # 32 and 8


def test_examples_of_arrays_are_those_of_the_batches_that_run():
    rows, labels = np.ones((1000, 4), "float32"), np.ones((1000, 1), "float32")
    for method, how, examples in [
        ("fit", {"batch_size": 300}, 250),
        ("fit", {"batch_size": 1000, "validation_split": 0.2}, 800),
        ("fit", {"batch_size": 1000, "validation_split": 0.2, "validation_data": rows}, 1000),
        ("fit", {"batch_size": 300, "steps_per_epoch": 3}, 300),
        ("fit", {"batch_size": 300, "steps_per_epoch": 3, "epochs": 8}, 250),
        ("fit", {"batch_size": 300, "steps_per_epoch": 1, "epochs": 5, "initial_epoch": 2}, 300),
        ("evaluate", {"batch_size": 300, "steps": 3}, 300),
        ("evaluate", {"batch_size": 300, "steps": 4}, 250),
    ]:
        for x in (rows, {"x": rows}):
            call = KerasCall.of(model_of(), method, (x, labels), how)
            assert examples_per_step(call, keras_workload(call)) == examples, (method, how)


def test_evaluation_in_a_batch_end_callback_is_part_of_the_step(profile):
    class Evaluating(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if (
                batch >= 16 and batch % 2
            ):  # traced are 16 to 21, or later where the buffers settle late
                self.model.evaluate(X[:4], Y[:4], verbose=0)

    result = profile.fit(
        model_of(), X, Y, batch_size=2, epochs=4, verbose=0, callbacks=[Evaluating()]
    )
    assert len(result.steps) == 6
    numbers = [int(step.name.removeprefix("train ")) for step in result.steps]
    assert numbers == list(range(numbers[0], numbers[0] + 6))


def test_a_slow_pydataset_has_the_batch_of_its_rows_its_own_remedies_and_its_line(profile):
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 100

        def __getitem__(self, index):
            time.sleep(0.02)  # the load under test
            return X[:8], Y[:8]

    result = profile.fit(model_of(), Batches(), epochs=2, verbose=0, shuffle=False)
    assert result.workload["batch"] == 8
    assert result.workload["inputs"] == ["float32[8,3]", "float32[8,1]"]
    for metric in ("input_bound", "input_capacity"):
        detail = result.value(metric).detail
        assert "the PyDataset Batches at " in detail["where"]
        assert "test_keras.py:" in detail["where"]
        assert "workers=" in detail["try"]
        assert "max_queue_size=" in detail["try"]
        assert "interleave" not in detail["try"]
    assert "workers= and max_queue_size=" in result.advice[0].what
    assert guides.SAVING not in {one.read for one in result.advice}


def test_arrays_get_advice_on_arrays_and_not_on_the_stages_that_keras_makes(profile):
    rows = np.ones((640, 6000), np.float32)
    result = profile.predict(model_of(), rows, batch_size=64, verbose=0)
    for metric in ("input_bound", "input_capacity"):
        detail = result.value(metric).detail
        assert detail["where"].startswith("Keras makes the pipeline of arrays; ")
        assert detail["try"].startswith("larger batches (batch_size=)")
    about_input = [one.what for one in result.advice if "cache()" in one.what]
    assert about_input == []


@pytest.mark.parametrize(
    "n_batches", [2, *(pytest.param(n, marks=pytest.mark.full) for n in (1, 3, 4))]
)
def test_loop_of_few_batches_names_the_incomplete_windows(profile, n_batches):
    x, y = np.ones((2 * n_batches, 3), "float32"), np.ones((2 * n_batches, 1), "float32")
    result = profile.evaluate(model_of(), x, y, batch_size=2, verbose=0)
    assert result.value("first_step_time").number
    if n_batches < 4:
        assert f"evaluate ended after {n_batches} executions" in result.ended
        assert (
            n_batches == 3 or "evaluate ended after" in result.value("input_bound").why
        )  # of three, one was traced
    else:
        assert result.ended is None


def test_another_backend_is_refused_in_one_sentence(profile, monkeypatch):
    model = model_of()
    monkeypatch.setattr(keras.config, "backend", lambda: "openvino")
    for method in ("fit", "evaluate", "predict"):
        with pytest.raises(CaptureError) as raised:
            getattr(profile, method)(model, X, verbose=0, name=method)
        assert str(raised.value) == (
            f"{method} runs on Keras' openvino backend, and tfperf profiles TensorFlow, JAX and "
            "PyTorch only: set KERAS_BACKEND to one of these for this test"
        )


def test_what_is_no_keras_model_is_refused_by_its_type(profile):
    class Estimator:
        def fit(self, x):
            return self

    with pytest.raises(TypeError, match=r"takes a Keras model .* but got Estimator"):
        profile.fit(Estimator(), X)


def test_an_argument_that_the_loop_does_not_take_is_named(profile):
    with pytest.raises(TypeError) as raised:
        profile.fit(model_of(), X, Y, steps=400)
    assert str(raised.value) == "tf_profile.fit: got an unexpected keyword argument 'steps'"


HIDDEN = tf.TensorSpec((None, 3)), tf.TensorSpec((None, 1))


def hidden(n_rows):
    """Batches whose signature leaves their size open after a stage that may change it."""
    data = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(n_rows)
    return data.apply(tf.data.experimental.assert_cardinality(400)).map(
        lambda x, y: tuple(
            tf.ensure_shape(tf.numpy_function(lambda a: a, [part], part.dtype), spec.shape)
            for part, spec in zip((x, y), HIDDEN, strict=True)
        )
    )


def batches(n_rows):
    for _ in range(400):
        yield X[:n_rows], Y[:n_rows]


@pytest.mark.parametrize(
    "method", ["predict", *(pytest.param(n, marks=pytest.mark.full) for n in ("fit", "evaluate"))]
)
def test_examples_per_step_of_a_keras_form_win(profile, method):
    options = {"batch_size": 2, "verbose": 0, "examples_per_step": 7}
    data = (X,) if method == "predict" else (X, Y)
    result = getattr(profile, method)(model_of(), *data, **options)
    # step_time is the median of the blocks, and throughput is of their mean
    assert (
        min(result.blocks_s) * (1 - 1e-9)
        <= 7 / result.throughput
        <= max(result.blocks_s) * (1 + 1e-9)
    )
    assert result.value("throughput").detail["examples_per_step"] == 7


@pytest.mark.parametrize(
    ("data", "inputs"),
    [
        pytest.param(hidden, ["float32[?,3]", "float32[?,1]"], id="dataset"),
        pytest.param(
            batches,
            ["float32[16,3]", "float32[16,1]"],
            id="generator",
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_batch_size_that_the_data_hide_is_read_from_a_batch(profile, data, inputs):
    result = profile.fit(model_of(), data(16), verbose=0, steps_per_epoch=400, shuffle=False)
    known_data = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(16)
    known = profile.fit(
        model_of(), known_data, verbose=0, steps_per_epoch=400, shuffle=False, name="known"
    )
    assert result.workload["batch"] == 16
    assert result.workload["inputs"] == inputs
    assert known.workload == {
        "inputs": ["float32[?,3]", "float32[?,1]"],
        "batch": 16,
        "steps_per_execution": 1,
        "replicas": 1,
    }
    assert result.value("throughput").detail["examples_per_step"] == 16
    assert result.flops == known.flops > 0


def test_a_generator_gives_keras_each_batch_once(profile):
    drawn = []

    def counted():
        for n in range(60):
            drawn.append(n)
            yield X[:4], Y[:4]

    result = profile.fit(model_of(), counted(), verbose=0, steps_per_epoch=60, shuffle=False)
    assert drawn == list(range(len(drawn)))
    assert result.workload["batch"] == 4
    assert "a sample would use it up" in result.value("batch_padding").why
