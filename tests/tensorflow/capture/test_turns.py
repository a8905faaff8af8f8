"""Turns within a profile, as a coordinator asks for them."""

import gc
import os
import time
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers.profilers import profiler as new_profiler

from pytest_tfperf.capture import blocks
from pytest_tfperf.capture.blocks import Block, run_turns
from pytest_tfperf.turn import Ready, Turn

pytestmark = pytest.mark.imports("keras")

WINDOWS = {"warmup": 3, "steps": 12, "trace_steps": 6}
READY = Ready(workload={}, call_s=0.1, least_s=0.02, most_calls=None)


def block_of(n_steps, seconds, cpu_seconds=0.01):
    return Block(seconds, cpu_seconds, n_steps, [], [], [], [])


class Script:
    """A coordinator that asks for these turns, and records the answers."""

    def __init__(self, *turns):
        self.turns, self.said, self.calls = [*turns, None], [], []
        self.step_times, self.cpu_times = [], []

    def __call__(self, profile, tolerance):
        self.said.append((profile, tolerance))
        return self

    def ready(self, ready):
        self.said.append(ready)
        return self.turns.pop(0)

    def ran(self, step_s, cpu_s):
        self.step_times.append(step_s)
        self.cpu_times.append(cpu_s)
        return self.turns.pop(0)


@pytest.fixture
def coordinated(request):
    """A `tf_profile` with a coordinator that asks for two turns, of 1 + 2 and of 2 + 3 calls."""
    client = Script(Turn(untimed=1, timed=2), Turn(untimed=2, timed=3))
    child = SimpleNamespace(turn_client=client, part=None)
    profiler = new_profiler({**WINDOWS, "max_regression": "3%"}, child)
    yield profiler, client
    profiler.close()


def test_turn_runs_untimed_calls_first_and_reports_its_time():
    client, blocks = Script(Turn(untimed=1, timed=4), Turn(untimed=2, timed=5)), []

    def block(size):
        for _ in range(size):
            yield
        blocks.append(size)
        return block_of(size, size**2 / 100)

    assert len(list(run_turns(client, READY, block))) == 1 + 4 + 2 + 5
    assert blocks == [1, 4, 2, 5]
    assert client.said == [READY]
    assert client.step_times == [0.04, 0.05]


def test_turn_reports_processor_time_with_the_share_of_children_that_is_told(monkeypatch):
    """The children's is read once a turn in ticks of 10 ms, of which a turn needs ten."""
    cases = [  # seconds of the children in the turn, its steps, processor time of a step
        ([1.0, 1.0], (1, 2), 0.01),
        ([1.0, 1.3], (1, 2), 0.01 + 0.1),
        ([1.0, 1.03], (1, 2), None),
        ([None, None], (1, 2), None),
    ]
    for readings, (untimed, timed), cpu_s in cases:
        left = list(readings)
        monkeypatch.setattr(blocks, "children_cpu_s", lambda but, left=left: left.pop(0))
        monkeypatch.setattr(blocks.os, "times", lambda: os.times_result((0.0,) * 5))

        def block(size):
            yield from range(size)
            return block_of(size, 1.0, cpu_seconds=0.01 * size)

        client = Script(Turn(untimed=untimed, timed=timed))
        list(run_turns(client, READY, block))
        assert client.cpu_times == [cpu_s if cpu_s is None else pytest.approx(cpu_s)], readings


def test_a_coordinator_that_wants_no_turn_gets_none():
    client = Script()
    assert list(run_turns(client, READY, lambda size: pytest.fail("a block"))) == []
    assert client.step_times == []


def test_no_garbage_is_collected_in_a_turn_and_the_collector_is_as_it_was():
    before, within = gc.get_threshold(), []

    def block(size):
        within.append(gc.get_threshold()[0])
        yield
        return block_of(size, 1.0)

    list(run_turns(Script(Turn(untimed=1, timed=1)), READY, block))
    assert min(within) > 100_000
    assert gc.get_threshold() == before


def test_turns_come_after_the_windows_of_a_profile_and_do_not_count(coordinated):
    profiler, client = coordinated
    calls = []
    profile = profiler(
        lambda x: calls.append(1) or tf.reduce_sum(x), [tf.ones((8, 8))] * 4, name="a"
    )
    (name, ready) = client.said
    assert name == ("a", 0.03)
    assert ready.workload["inputs"] == ["float32[8,8]"]
    assert ready.call_s > 0 < ready.least_s
    assert ready.most_calls is None
    assert len(client.step_times) == 2
    assert min(client.step_times) > 0
    n_probes = len(calls) - (1 + 3 + 12 + 6) - (1 + 2 + 2 + 3)
    assert 1 <= n_probes <= 10
    assert (
        profile.value("retraces").detail["n_steps"] == 3 + 12 + 6 + 1 + 3
    )  # after step 0, with a probe and without the turns


def test_turn_times_are_per_step_with_steps_per_call(coordinated):
    profiler, client = coordinated
    calls = []

    def step():
        start = time.perf_counter()
        time.sleep(0.02)  # the load under test: 5 ms a step
        calls.append(time.perf_counter() - start)

    profiler(step, steps_per_call=4)
    assert client.said[1].call_s >= 0.02
    assert 0.02 <= 4 * client.step_times[0] < 2 * max(calls)


class WithoutLength(list):
    def __len__(self):
        raise NotImplementedError


def batches(n):
    return [tf.ones((8, 8))] * n


@pytest.mark.parametrize(
    ("data", "epoch"),
    [
        (lambda: batches(400), 400),  # longer than all windows
        (
            lambda: tf.data.Dataset.range(9).filter(lambda n: n > 2).map(lambda n: tf.ones((8, 8))),
            6,
        ),
        (lambda: (tf.ones((8, 8)) for _ in range(400)), None),
        (lambda: None, None),
    ],
)
def test_coordinator_hears_the_length_of_an_epoch(coordinated, data, epoch):
    profiler, client = coordinated
    data = data()
    step = (lambda: tf.ones(())) if data is None else tf.reduce_sum
    profiler(step, data)
    assert client.said[1].epoch_calls == epoch


@pytest.mark.full
def test_coordinator_hears_the_length_of_other_epochs(coordinated):
    profiler, client = coordinated
    profiler(tf.reduce_sum, tf.data.Dataset.from_tensors(tf.ones((8, 8))).repeat(7))
    assert client.said[1].epoch_calls == 7
    client.turns = [None]
    profiler(tf.reduce_sum, WithoutLength(batches(400)), name="without length")
    assert client.said[-1].epoch_calls is None


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # Keras 3.5, of each epoch
@pytest.mark.parametrize("per_execution", [pytest.param(1, marks=pytest.mark.full), 3])
def test_coordinator_hears_the_length_of_a_keras_epoch(coordinated, per_execution):
    profiler, client = coordinated
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=per_execution)
    ended = []
    counting = keras.callbacks.LambdaCallback(on_train_batch_end=lambda n, logs: ended.append(n))
    x, y = np.ones((80, 2)), np.ones((80, 1))
    profiler.fit(model, x, y, batch_size=8, verbose=0, callbacks=[counting])
    # Keras 3.5 gives up the last execution, which has one batch
    assert client.said[1].epoch_calls == ended.index(ended[0], 1)
    assert client.said[1].epoch_calls in {10 // per_execution, -(-10 // per_execution)}


class Recorder(keras.callbacks.Callback):
    """Records what a user's callback sees, and the weights after each epoch."""

    def __init__(self):
        super().__init__()
        self.epochs, self.begun, self.over, self.n_batches = [], [], 0, 0

    def on_epoch_begin(self, epoch, logs=None):
        self.begun.append(epoch)

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append((epoch, sorted(logs)))
        self.weights = self.model.get_weights()
        self.loss = logs["loss"]

    def on_train_batch_end(self, batch, logs=None):
        self.n_batches += 1

    def on_train_end(self, logs=None):
        self.over += 1
        self.at_end = self.n_batches, self.params["epochs"], self.model.get_weights()

    on_test_begin = on_predict_begin = lambda self, logs=None: self.begun.append("pass")
    on_test_end = on_predict_end = lambda self, logs=None: setattr(self, "over", self.over + 1)
    on_test_batch_end = on_predict_batch_end = on_train_batch_end


def a_model():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    return model


ROWS = np.random.default_rng(0).random((24, 6), "float32")  # 24 batches of one, as the windows take
X, Y = ROWS[:, :4], ROWS[:, 4:]


def forever(profile, tolerance):
    """A coordinator that asks for more calls than four epochs have."""
    return Script(*[Turn(untimed=2, timed=30)] * 3)


FITS = {
    "one epoch": {"epochs": 1},
    "two epochs of few steps": {"epochs": 2, "steps_per_epoch": 12},
    "validation": {"epochs": 2, "validation_data": (X, Y), "steps_per_epoch": 12},
    "validation split": {"epochs": 2, "validation_split": 0.5},
    "a later epoch": {"epochs": 6, "initial_epoch": 4, "steps_per_epoch": 12},
    "a progress bar": {"epochs": 2, "verbose": 1},
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "validation" else pytest.mark.full) for name in FITS],
)
def test_fit_goes_on_for_turns_and_shows_only_what_it_was_asked_for(coordinated, name):
    profiler, client = coordinated
    client.turns = forever("", None).turns
    model, recorder, arguments = a_model(), Recorder(), {"verbose": 0, **FITS[name]}
    profile = profiler.fit(model, X, Y, batch_size=1, callbacks=[recorder], **arguments)
    assert len(client.step_times) == 3
    assert client.said[1].most_calls is None
    assert profile.ended is None
    asked = list(range(arguments.get("initial_epoch", 0), arguments["epochs"]))
    n_validations = len(asked) if "validation" in name else 0
    assert [one for one in recorder.begun if one != "pass"] == asked
    assert recorder.begun.count("pass") == n_validations
    assert [epoch for epoch, _ in recorder.epochs] == profile.result.epoch == asked
    assert recorder.epochs[0][1] == (["loss", "val_loss"] if "validation" in name else ["loss"])
    assert profile.result.params["epochs"] == arguments["epochs"]
    assert len(profile.result.history["loss"]) == len(asked)
    assert recorder.n_batches >= 3 * 32 + 1 + 3 + 12
    assert recorder.over == 1 + n_validations
    assert recorder.at_end[:2] == (recorder.n_batches, arguments["epochs"])
    for weights in (model.get_weights(), recorder.at_end[2]):
        for found, expected in zip(weights, recorder.weights, strict=True):
            np.testing.assert_array_equal(found, expected)
    assert model.history is profile.result
    assert not model.stop_training


def test_epochs_may_be_positional_and_a_callback_may_stop_the_training(coordinated):
    profiler, client = coordinated
    client.turns = forever("", None).turns
    stopping = keras.callbacks.EarlyStopping("loss", min_delta=1e9, patience=0)
    profile = profiler.fit(a_model(), X, Y, 1, 50, verbose=0, callbacks=[stopping])
    assert profile.result.epoch == [0, 1]
    assert len(client.step_times) == 3


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # in the epoch asked for
def test_data_that_cannot_begin_again_end_the_turns(coordinated):
    profiler, client = coordinated
    client.turns = forever("", None).turns
    rows = ((X[:1], Y[:1]) for _ in range(60))
    profile = profiler.fit(a_model(), rows, epochs=1, verbose=0, shuffle=False)
    assert len(client.step_times) <= 1
    assert profile.result.epoch == [0]


@pytest.mark.parametrize("method", ["evaluate", pytest.param("predict", marks=pytest.mark.full)])
def test_one_pass_is_repeated_for_turns_and_the_first_result_stays(coordinated, method):
    profiler, client = coordinated
    client.turns = forever("", None).turns
    model, recorder = a_model(), Recorder()
    data = [X, Y] if method == "evaluate" else [X]
    profile = getattr(profiler, method)(model, *data, batch_size=1, verbose=0, callbacks=[recorder])
    assert len(client.step_times) == 3
    assert (recorder.begun, recorder.over) == (["pass"], 1)
    assert recorder.n_batches >= 3 * 32
    expected = getattr(model, method)(*data, batch_size=1, verbose=0)
    np.testing.assert_allclose(profile.result, expected, rtol=1e-5)


@pytest.mark.full
def test_loops_without_turns_end_where_they_were_asked_to(profile):
    recorder = Recorder()
    found = profile.fit(a_model(), X, Y, batch_size=1, epochs=1, verbose=0, callbacks=[recorder])
    assert recorder.n_batches <= 24
    assert found.result.epoch == [0]


def test_data_that_end_within_a_turn_end_the_profile(coordinated):
    profiler, client = coordinated
    profile = profiler(lambda x: tf.reduce_sum(x), iter([tf.ones((8, 8))] * (1 + 3 + 12 + 6 + 4)))
    assert len(client.step_times) == 1
    assert profile.ended is None
    assert profile.step_time > 0
