"""The lowered modules of profiled steps, in each form of profiling."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers.hlo_products import of_step, products
from helpers.profilers import profiler as new_profiler
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

from pytest_tfperf.plugin import profiles
from pytest_tfperf.values import Unknown

pytestmark = pytest.mark.imports("keras")

X, Y = np.ones((96, 8, 8, 3), "float32"), np.ones((96, 2), "float32")
W = tf.Variable(tf.ones((4, 4)))
DATA = [tf.ones((3, 4))] * 4
ONCE = [(["dot f32[3,4] f32[4,4]"], 1)]
step = tf.function(lambda x: x @ W)
UNTOUCHED = ConcreteFunction._call_flat


@pytest.fixture
def recordings(monkeypatch):
    """List the recordings that capture hands to analysis."""
    seen = []
    original = profiles.profile_of
    monkeypatch.setattr(
        profiles,
        "profile_of",
        lambda evidence, later: (seen.append(evidence), original(evidence, later))[1],
    )
    return seen


@pytest.fixture
def short(profile):
    """Windows that four batches of Keras fill."""
    profiler = new_profiler({"warmup": 1, "steps": 1, "trace_steps": 2})
    yield profiler
    profiler.close()


def model_of(dtype="float32", **options):
    layers = [
        keras.layers.Conv2D(4, 3, dtype=dtype),
        keras.layers.Flatten(),
        keras.layers.Dense(2, dtype=dtype),
    ]
    model = keras.Sequential([keras.Input((8, 8, 3)), *layers])
    model.compile("sgd", "mse", **options)
    return model


def forward(batch, name="f32"):
    return [
        f"convolution {name}[{batch},8,8,3] {name}[3,3,3,4]",
        f"dot {name}[{batch},144] {name}[144,2]",
    ]


def training(batch, name="f32"):
    gradients = [
        f"convolution {name}[{batch},8,8,3] {name}[{batch},6,6,4]",
        f"dot {name}[{batch},144] {name}[{batch},2]",
        f"dot {name}[{batch},2] {name}[144,2]",
    ]
    return sorted(forward(batch, name) + gradients)


def test_called_step_is_lowered(profile, recordings):
    profile(step, DATA)
    assert of_step(recordings[0].code.lowered) == ONCE
    assert not isinstance(recordings[0].code.lowered, Unknown)


def test_own_loop_and_a_second_profile_are_lowered(profile, recordings):
    for batch in profile.steps(DATA):
        step(batch)
    for batch in profile.steps(DATA, name="second"):
        step(step(batch))
    assert [of_step(recording.code.lowered) for recording in recordings] == [
        ONCE,
        [(ONCE[0][0], 2)],
    ]


def test_call_of_several_steps_is_divided_by_them(profile, recordings):
    profile(lambda x: [step(x), step(x), step(x)], DATA, steps_per_call=3)
    assert of_step(recordings[0].code.lowered) == ONCE


def test_function_with_an_iterator_is_lowered(profile, recordings):
    elements = iter(tf.data.Dataset.from_tensors(tf.ones(4)).repeat().batch(3, drop_remainder=True))
    profile(tf.function(lambda: next(elements) @ W))
    assert of_step(recordings[0].code.lowered) == ONCE


@pytest.mark.parametrize(
    ("dtype", "name", "jit"),
    [
        ("mixed_bfloat16", "bf16", False),
        pytest.param("mixed_bfloat16", "bf16", True, marks=pytest.mark.full),
        pytest.param("float32", "f32", False, marks=pytest.mark.full),
        pytest.param("float32", "f32", True, marks=pytest.mark.full),
    ],
)
def test_keras_fit_is_lowered_in_its_precision(short, recordings, jit, dtype, name):
    model = model_of(dtype, jit_compile=jit)
    short.fit(model, X[:40], Y[:40], batch_size=8, verbose=0)
    assert of_step(recordings[0].code.lowered) == [(training(8, name), 1)]


def of_execution(each, n, method):
    """The products of a step and how often they run, where an execution has n batches."""
    if method == "predict" or keras.__version__.startswith("3.5."):  # one function for all of them
        return [(sorted(each * n), pytest.approx(1 / n))]
    return [(each, 1)]


@pytest.mark.parametrize(
    "method", ["fit", *(pytest.param(n, marks=pytest.mark.full) for n in ("evaluate", "predict"))]
)
def test_an_execution_of_several_batches_counts_for_one_step(short, recordings, method):
    model = model_of(steps_per_execution=3)
    data = tf.data.Dataset.from_tensor_slices((X[:72], Y[:72])).batch(6).prefetch(1)
    getattr(short, method)(
        model, data, verbose=0, **({"shuffle": False} if method == "fit" else {})
    )
    each = training(6) if method == "fit" else forward(6)
    assert of_step(recordings[0].code.lowered) == of_execution(each, 3, method)


@pytest.mark.parametrize("method", ["evaluate", pytest.param("predict", marks=pytest.mark.full)])
def test_keras_loops_without_training_are_lowered(short, recordings, method):
    getattr(short, method)(
        model_of(), X[:48], *([Y[:48]] if method == "evaluate" else []), batch_size=8, verbose=0
    )
    assert of_step(recordings[0].code.lowered) == [(forward(8), 1)]


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize(
    ("per_execution", "fixed"),
    [
        (1, False),
        pytest.param(1, True, marks=pytest.mark.full),
        pytest.param(2, False, marks=pytest.mark.full),
        pytest.param(2, True, marks=pytest.mark.full),
    ],
)
def test_end_of_data_of_unknown_length_does_not_count_as_a_step(
    short, recordings, per_execution, fixed
):
    rows = tf.data.Dataset.from_tensor_slices((X[:6], Y[:6]))
    # The filter might change the batch, and does not.
    data = rows.batch(2, drop_remainder=fixed).filter(lambda x, y: True)
    short.fit(model_of(steps_per_execution=per_execution), data, epochs=6, verbose=0, shuffle=False)
    each = of_execution(training(2), per_execution, "fit")
    assert of_step(recordings[0].code.lowered) == each


def cut_by_chance(x, y):
    n = 1 + tf.random.uniform((), maxval=6, dtype=tf.int32, seed=3)
    return x[:n], y[:n]


@pytest.mark.parametrize(
    ("change", "batch"),
    [
        pytest.param(lambda x, y: (x[:4], y[:4]), 4, id="cut"),
        pytest.param(cut_by_chance, None, id="unknown"),
        pytest.param(
            lambda x, y: (tf.repeat(x, 2, 0), tf.repeat(y, 2, 0)),
            12,
            id="doubled",
            marks=pytest.mark.full,
        ),
        pytest.param(
            lambda x, y: (tf.boolean_mask(x, y[:, 0] > 0), y),  # all of them
            6,
            id="masked",
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_map_after_the_batch_changes_what_a_step_computes(short, recordings, change, batch):
    data = tf.data.Dataset.from_tensor_slices((X[:72], Y[:72])).batch(6).map(change)
    short.fit(model_of(), data, verbose=0, shuffle=False)
    assert (
        recordings[0].recording.workload["batch"]
        == recordings[0].recording.examples_per_step
        == batch
    )
    if batch is None:
        assert "of unknown size" in recordings[0].code.lowered.why
    else:
        assert of_step(recordings[0].code.lowered) == [(training(batch), 1)]


@pytest.mark.full
def test_validation_between_epochs_does_not_count(short, recordings):
    short.fit(
        model_of(),
        X[:8],
        Y[:8],
        batch_size=4,
        epochs=6,
        validation_data=(X[:16], Y[:16]),
        verbose=0,
    )
    assert of_step(recordings[0].code.lowered) == [(training(4), 1)]


def test_bracketed_steps_are_lowered(profile, recordings):
    step(step(DATA[0]))  # outside
    with profile.trace() as trace:
        for _ in range(3):
            step(DATA[0])
            with trace.step():
                step(DATA[0])
    assert of_step(recordings[0].code.lowered) == ONCE


def test_marker_without_fixture_lowers_the_calls(profile, recordings):
    with profile.whole_body():
        for batch in DATA:
            step(batch)
    assert of_step(recordings[0].code.lowered) == ONCE


def test_marker_without_fixture_lowers_a_keras_loop(short, recordings):
    with short.whole_body():
        model_of().fit(X[:64], Y[:64], batch_size=8, verbose=0)
    assert of_step(recordings[0].code.lowered) == [(training(8), 1)]
    assert ConcreteFunction._call_flat is UNTOUCHED


def test_calls_in_steps_marked_by_the_test_are_unknown(profile, recordings):
    with profile.whole_body():
        for number in range(3):
            with tf.profiler.experimental.Trace("mine", step_num=number, _r=1):
                step(step(DATA[0]))
    assert "which functions a step calls" in recordings[0].code.lowered.why


def test_different_steps_are_noted(profile, recordings):
    turns = iter(range(1000))
    profile(lambda x: step(x) if next(turns) % 3 else step(step(x)), DATA)
    assert of_step(recordings[0].code.lowered) == ONCE
    assert [
        note
        for note in recordings[0].code.lowering_notes
        if note.startswith("2 of 6 traced steps call other functions")
    ]


def test_steps_that_cannot_be_lowered_have_a_reason(profile, recordings):
    profile(lambda x: x @ W, DATA)
    assert "called no tf.function" in recordings[0].code.lowered.why
    python = tf.function(lambda x: tf.py_function(lambda a: a, [x], tf.float32))
    profile(python, DATA, name="python")
    assert "EagerPyFunc" in recordings[1].code.lowered.why


def test_windows_without_a_trace_have_a_reason(profile, recordings):
    for number, batch in enumerate(profile.steps(DATA)):
        step(batch)
        if number == 5:
            break
    assert "was left after 5 steps" in recordings[0].code.lowered.why


def test_interrupted_second_round_keeps_functions_of_the_first(profile, recordings, monkeypatch):
    monkeypatch.setattr(profiles, "settling_steps", lambda *_: 3)
    for number, batch in enumerate(profile.steps(DATA)):
        if (
            number == 37
        ):  # the first step of the second traced window: 22 of the first round, 3 of waiting, 12 timed
            break
        step(batch)
    assert len(profile.profile.steps) == 6
    assert of_step(recordings[0].code.lowered) == ONCE


@pytest.mark.parametrize("at", [18, *(pytest.param(n, marks=pytest.mark.full) for n in (2, 22))])
def test_error_in_any_window_restores_tensorflow(profile, recordings, at):
    calls = iter(range(1, 100))

    def failing(x):
        if next(calls) == at:
            raise KeyError("mine")
        return step(x)

    with pytest.raises(KeyError):
        profile(failing, DATA)
    assert ConcreteFunction._call_flat is UNTOUCHED
    profile(step, DATA, name="next")
    assert of_step(recordings[0].code.lowered) == ONCE


def test_profiled_loop_changes_the_model_like_the_loop_alone(short, recordings):
    plain, profiled = model_of(), model_of()
    profiled.set_weights(plain.get_weights())
    plain.fit(X[:64], Y[:64], batch_size=8, verbose=0, shuffle=False)
    with short.whole_body():
        profiled.fit(X[:64], Y[:64], batch_size=8, verbose=0, shuffle=False)
    assert products(recordings[0].code.lowered[0][0])
    for one, other in zip(plain.get_weights(), profiled.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)  # threads may add up in another order
    assert profiled.optimizer.iterations.numpy() == 8
