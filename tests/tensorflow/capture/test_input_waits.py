"""Waits for input that are built into real pipelines, beside steps that count their own time."""

import time

import numpy as np
import pytest
import tensorflow as tf
from helpers.profilers import profiler as new_profiler

pytestmark = pytest.mark.full

BATCH, EPOCH = np.ones((8, 4), "float32"), 8


@pytest.fixture
def profile_more():
    """The profiler, with as many steps as it runs by default."""
    return new_profiler({"warmup": 3})


def as_written(data):
    """The pipeline without a prefetch or parallel calls that TensorFlow adds."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    return data.with_options(options)


def sleeping(seconds, buffer=0):
    """A pipeline that sleeps for each batch, in the thread of the steps or behind a buffer."""

    def make(_):
        time.sleep(seconds)
        return BATCH

    def batch(number):
        return tf.ensure_shape(tf.numpy_function(make, [number], tf.float32), BATCH.shape)

    data = tf.data.Dataset.range(10**6).map(batch)
    return as_written(data.prefetch(buffer) if buffer else data)


def step_of(seconds):
    def step(batch):
        time.sleep(seconds)
        return batch

    return step


def test_input_that_is_ready_is_not_waited_for(profile_more):
    """A step of a millisecond, of which a next() with a ready element takes a fifth or more."""
    constant = tf.data.Dataset.from_tensors(BATCH)
    for name, data in {
        "constant": constant.repeat(),
        "buffered": constant.repeat().prefetch(8),
        "as arrays": constant.repeat().prefetch(8).as_numpy_iterator(),
        "a list": [BATCH] * 100,
    }.items():
        assert profile_more(step_of(0.001), data, name=name).input_bound <= 0.05, name


@pytest.mark.parametrize("buffer", [pytest.param(0, marks=pytest.mark.nightly), 2])
def test_waits_are_as_long_as_the_pipeline_sleeps(profile_more, buffer):
    ran, step = [], step_of(0.006)

    def noted(batch):
        begun = time.perf_counter()
        step(batch)
        ran.append((begun, time.perf_counter()))

    # much longer than the step, whose own sleep is longer on a busy machine
    found = profile_more(noted, sleeping(0.04, buffer))
    timed = np.array(ran[4:50])  # blocks have pauses between them, so medians count
    waited, worked = np.median(timed[1:, 0] - timed[:-1, 1]), np.median(np.diff(timed))
    assert waited > worked
    assert found.input_bound == pytest.approx(waited / (waited + worked), abs=0.1)


@pytest.mark.parametrize(
    ("n_slow", "step_s"), [pytest.param(20, 0.005, marks=pytest.mark.nightly), (30, 0.001)]
)
def test_a_slow_start_counts_neither_for_the_step_time_nor_for_the_waits(
    profile_more, n_slow, step_s
):
    """Three of the slow elements are warm-up; the others are most blocks of the timed steps, as these have one step each."""

    def make(number):
        time.sleep(0.1 if number < n_slow else 0)
        return BATCH

    def batch(number):
        return tf.ensure_shape(tf.numpy_function(make, [number], tf.float32), BATCH.shape)

    data = tf.data.Dataset.range(10**6).map(batch)
    found = profile_more(step_of(step_s), data)
    # the blocks are left out, or timed again where a wait for the lock let the buffers fill
    assert found.step_time < 0.05
    assert found.input_bound < 0.5


def epochs_that_begin_slowly():
    """Epochs of eight batches, the first of which takes 100 ms."""

    def make(number):
        time.sleep(0 if number else 0.1)
        return BATCH

    def batch(number):
        made = tf.ensure_shape(tf.numpy_function(make, [number], tf.float32), BATCH.shape)
        return made, made[:, :1]

    return as_written(tf.data.Dataset.range(EPOCH).map(batch))


def is_of_whole_epochs(found, seconds):
    """Whether the waits are those of whole epochs, and the throughput that of the loop."""
    assert seconds / 2 < EPOCH * 8 / found.throughput < 2 * seconds
    mean = np.mean(found.blocks_s)
    assert found.input_bound == pytest.approx(0.1 / (EPOCH * mean), abs=0.15)
    said = [note for note in found.notes if "first step of each epoch" in note]
    assert said or mean < 1.3 * found.step_time


def test_the_first_batch_of_each_epoch_is_waited_for(profile_more):
    data = epochs_that_begin_slowly()
    found = profile_more(lambda x, y: time.sleep(0.004), data)
    begun = time.perf_counter()
    for _ in range(3):
        for _ in data:
            time.sleep(0.004)
    is_of_whole_epochs(found, (time.perf_counter() - begun) / 3)


@pytest.mark.imports("keras")
def test_keras_waits_for_the_first_batch_of_each_epoch(profile_more):
    import keras

    class Slow(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            time.sleep(0.004)

    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = epochs_that_begin_slowly()
    found = profile_more.fit(model, data, epochs=40, verbose=0, shuffle=False, callbacks=[Slow()])
    begun = time.perf_counter()
    model.fit(data, epochs=3, verbose=0, shuffle=False, callbacks=[Slow()])
    is_of_whole_epochs(found, (time.perf_counter() - begun) / 3)
    assert found.value("input_bound").source.value == "trace"


@pytest.mark.nightly
def test_waits_that_the_profiler_may_hide_pass_no_limit(profile_more):
    """The pipeline takes about as long as the work of the step, which the profiler makes longer."""
    import keras

    layers = [keras.layers.Dense(256) for _ in range(4)]
    model = keras.Sequential([keras.Input((32,)), *layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    rows = np.ones((64, 32), "float32")
    fit = {"epochs": 2, "steps_per_epoch": 200, "verbose": 0, "shuffle": False}
    ready = tf.data.Dataset.from_tensors((rows, rows[:, :1])).repeat()
    found = profile_more.fit(model, ready, **fit, name="ready")
    assert found.value("input_bound").high() < 0.1
    work_s = found.step_time

    def batches():
        while True:
            time.sleep(work_s)
            yield rows, rows[:, :1]

    as_slow = tf.data.Dataset.from_generator(batches, output_signature=ready.element_spec)
    found = profile_more.fit(model, as_slow.prefetch(2), **fit, name="as slow")
    share, wait = found.value("input_bound"), found.value("input_wait")
    assert share.low() == share.number
    assert share.high() == 1
    assert wait.high() > found.step_time * 0.8
