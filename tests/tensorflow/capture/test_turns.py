"""Turns within a profile, as a coordinator asks for them."""

import gc
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.capture.blocks import run_turns
from pytest_tfperf.capture.plan import Plan
from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.plugin.fixture import TfProfile
from pytest_tfperf.plugin.profile_settings import Settings
from pytest_tfperf.turns import Ready, Turn

WINDOWS = {"warmup": 3, "steps": 12, "trace_steps": 6}
READY = Ready(workload={}, call_s=0.1, least_s=0.02, most_calls=None)


class Script:
    """A coordinator that asks for these turns, and records the answers."""

    def __init__(self, *turns):
        self.turns, self.said, self.step_times, self.calls = [*turns, None], [], [], []

    def __call__(self, profile, tolerance):
        self.said.append((profile, tolerance))
        return self

    def ready(self, ready):
        self.said.append(ready)
        return self.turns.pop(0)

    def ran(self, step_s):
        self.step_times.append(step_s)
        return self.turns.pop(0)


@pytest.fixture
def coordinated(request):
    """A `tf_profile` with a coordinator that asks for two turns, of 1 + 2 and of 2 + 3 calls."""
    client = Script(Turn(untimed=1, timed=2), Turn(untimed=2, timed=3))
    profiler = TfProfile(
        Settings(
            wanted=Wanted.read({**WINDOWS, "max_regression": "3%"}),
            plan=Plan(),
            turn_clients=client,
        )
    )
    yield profiler, client
    profiler.close()


def test_turn_runs_untimed_calls_first_and_reports_its_time():
    client, blocks = Script(Turn(untimed=1, timed=4), Turn(untimed=2, timed=5)), []

    def block(size):
        for _ in range(size):
            yield
        blocks.append(size)
        return size / 100

    assert len(list(run_turns(client, READY, block))) == 1 + 4 + 2 + 5
    assert blocks == [1, 4, 2, 5]
    assert client.said == [READY]
    assert client.step_times == [0.04, 0.05]


def test_a_coordinator_that_wants_no_turn_gets_none():
    client = Script()
    assert list(run_turns(client, READY, lambda size: pytest.fail("a block"))) == []
    assert client.step_times == []


def test_no_garbage_is_collected_in_a_turn_and_the_collector_is_as_it_was():
    before, within = gc.get_threshold(), []

    def block(size):
        within.append(gc.get_threshold()[0])
        yield
        return 1.0

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
        profile.value("retraces").detail["n_steps"] == 3 + 12 + 6
    )  # after step 0, and before the turns


def test_turn_times_are_per_step_with_steps_per_call(coordinated):
    profiler, client = coordinated
    profiler(lambda: time.sleep(0.02), steps_per_call=4)  # the load under test: 5 ms a step
    assert min(client.step_times) < 0.02 <= client.said[1].call_s


def test_keras_loop_reports_its_remaining_calls(coordinated):
    profiler, client = coordinated
    model = keras.Sequential([keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    x, y = np.ones((40, 4), "float32"), np.ones((40, 2), "float32")
    profiler.fit(model, x, y, batch_size=1, epochs=1, verbose=0)
    ready = client.said[1]
    assert ready.most_calls == 40 - (1 + 3 + 12 + 6) - 1
    assert ready.workload["batch"] == 1
    assert len(client.step_times) == 2


def test_data_that_end_within_a_turn_end_the_profile(coordinated):
    profiler, client = coordinated
    profile = profiler(lambda x: tf.reduce_sum(x), iter([tf.ones((8, 8))] * (1 + 3 + 12 + 6 + 4)))
    assert len(client.step_times) == 1
    assert profile.ended is None
    assert profile.step_time > 0
