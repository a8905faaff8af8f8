"""Samples of the Python stack: the user's line, what it calls, and how long."""

import json
import sys
import time
from collections import Counter

import numpy as np
import pytest

from pytest_tfperf.capture.stack_samples import stack_times, stacks_sampled

LONG = list(range(20_000))


def busy(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def encode(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        json.dumps({str(n): n for n in LONG[:2000]}, indent=1)


def seconds_by(found, field):
    sums = Counter()
    for one in found:
        sums[getattr(one, field)] += one.seconds
    return sums


def test_the_time_of_each_line_is_that_which_it_takes():
    with stacks_sampled(0.002) as stacks:
        busy(0.6)
        encode(0.3)
    found = stack_times(stacks, 1)
    by_file = seconds_by([one for one in found if not one.called], "function")
    own = sum(time for name, time in by_file.items() if name.endswith(":busy"))
    of_json = sum(one.seconds for one in found if one.called.startswith("json/"))
    assert own == pytest.approx(0.6, rel=0.5)
    assert 0 < of_json < own
    assert all(one.line.startswith("test_stack_samples.py:") for one in found if one.line)


def test_what_sampling_changed_is_as_before():
    before = sys.getswitchinterval()
    with pytest.raises(KeyError), stacks_sampled(0.001):
        busy(0.02)
        raise KeyError
    assert sys.getswitchinterval() == before


def test_steps_are_a_part_of_the_time():
    with stacks_sampled(0.001) as stacks:
        busy(0.2)
    whole, each = (sum(one.seconds for one in stack_times(stacks, n)) for n in (1, 4))
    assert each == pytest.approx(whole / 4)


@pytest.mark.full
@pytest.mark.imports("keras")
def test_a_callback_has_its_class_and_line(profile):
    import keras

    class Writes(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            encode(0.02)

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    rows = np.ones((64, 4), np.float32)
    found = profile.fit(
        model, rows, rows[:, :1], batch_size=8, epochs=20, callbacks=[Writes()], verbose=0
    )
    first = next(
        row for row in found.tables["time_causes"].records() if row["metric"] == "step_time"
    )
    assert "on_train_batch_end" in first["where"]
    assert "test_stack_samples.py:" in first["where"]
    assert first["share"] > 0.5
    assert "callback" in first["try"]
