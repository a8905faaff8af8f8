"""The turns that a referee asks for, within a profile."""

import gc
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.capture.plan import Plan
from pytest_tfperf.capture.windows import play_turns
from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.plugin.fixture import TfProfile
from pytest_tfperf.plugin.profiles import Settings
from pytest_tfperf.turns import Ready, Turn

WINDOWS = {"warmup": 3, "steps": 12, "trace_steps": 6}
READY = Ready(workload={}, call_s=0.1, least_s=0.02, most_calls=None)


class Script:
    """A referee that asks for these turns, and keeps what it is told."""

    def __init__(self, *turns):
        self.turns, self.said, self.played_s, self.calls = [*turns, None], [], [], []

    def __call__(self, profile, tolerance):
        self.said.append((profile, tolerance))
        return self

    def ready(self, ready):
        self.said.append(ready)
        return self.turns.pop(0)

    def played(self, step_s):
        self.played_s.append(step_s)
        return self.turns.pop(0)


@pytest.fixture
def refereed(request):
    """A `tf_profile` with a referee that asks for two turns, of 1 + 2 and of 2 + 3 calls."""
    seat = Script(Turn(untimed=1, timed=2), Turn(untimed=2, timed=3))
    profiler = TfProfile(
        Settings(wanted=Wanted.read({**WINDOWS, "max_regression": "3%"}), plan=Plan(), seats=seat)
    )
    yield profiler, seat
    profiler.close()


def test_what_is_not_timed_comes_first_and_each_answer_asks_for_the_next():
    seat, blocks = Script(Turn(untimed=1, timed=4), Turn(untimed=2, timed=5)), []

    def block(size):
        for _ in range(size):
            yield
        blocks.append(size)
        return size / 100

    assert len(list(play_turns(seat, READY, block))) == 1 + 4 + 2 + 5
    assert blocks == [1, 4, 2, 5]
    assert seat.said == [READY]
    assert seat.played_s == [0.04, 0.05]


def test_a_referee_that_wants_no_turn_gets_none():
    seat = Script()
    assert list(play_turns(seat, READY, lambda size: pytest.fail("a block"))) == []
    assert seat.played_s == []


def test_no_garbage_is_collected_in_a_turn_and_the_collector_is_as_it_was():
    before, within = gc.get_threshold(), []

    def block(size):
        within.append(gc.get_threshold()[0])
        yield
        return 1.0

    list(play_turns(Script(Turn(untimed=1, timed=1)), READY, block))
    assert min(within) > 100_000
    assert gc.get_threshold() == before


def test_a_profile_plays_after_its_own_windows_and_its_counts_are_without_the_turns(refereed):
    profiler, seat = refereed
    calls = []
    profile = profiler(
        lambda x: calls.append(1) or tf.reduce_sum(x), [tf.ones((8, 8))] * 4, name="a"
    )
    (name, ready) = seat.said
    assert name == ("a", 0.03)
    assert ready.workload["inputs"] == ["float32[8,8]"]
    assert ready.call_s > 0 < ready.least_s
    assert ready.most_calls is None
    assert len(seat.played_s) == 2
    assert min(seat.played_s) > 0
    n_probes = len(calls) - (1 + 3 + 12 + 6) - (1 + 2 + 2 + 3)
    assert 1 <= n_probes <= 10
    assert (
        profile.value("retraces").detail["n_steps"] == 3 + 12 + 6
    )  # after step 0, and before the turns


def test_steps_per_call_make_a_call_longer_and_a_turn_is_told_by_step(refereed):
    profiler, seat = refereed
    profiler(lambda: time.sleep(0.02), steps_per_call=4)  # the load under test: 5 ms a step
    assert min(seat.played_s) < 0.02 <= seat.said[1].call_s


def test_a_keras_loop_says_how_many_calls_it_has_left(refereed):
    profiler, seat = refereed
    model = keras.Sequential([keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    x, y = np.ones((40, 4), "float32"), np.ones((40, 2), "float32")
    profiler.fit(model, x, y, batch_size=1, epochs=1, verbose=0)
    ready = seat.said[1]
    assert ready.most_calls == 40 - (1 + 3 + 12 + 6) - 1
    assert ready.workload["batch"] == 1
    assert len(seat.played_s) == 2


def test_data_that_end_within_a_turn_end_the_profile(refereed):
    profiler, seat = refereed
    profile = profiler(lambda x: tf.reduce_sum(x), iter([tf.ones((8, 8))] * (1 + 3 + 12 + 6 + 4)))
    assert len(seat.played_s) == 1
    assert profile.ended is None
    assert profile.step_time > 0
