"""Samples of the Python stack: the user's line, what it calls, and how long."""

import json
import signal
import subprocess
import sys
import threading
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


def switches():
    return sys.getswitchinterval(), signal.getsignal(signal.SIGURG), threading.active_count()


def test_what_sampling_changed_is_as_before():
    before = switches()
    with pytest.raises(KeyError), stacks_sampled(0.001) as stacks:
        busy(0.1)
        raise KeyError
    assert stacks
    assert switches() == before


def test_a_handler_of_the_user_stays_and_nothing_is_sampled():
    got = []
    before = signal.signal(signal.SIGURG, lambda number, _: got.append(number))
    try:
        with stacks_sampled(0.001) as stacks:
            busy(0.1)
            signal.raise_signal(signal.SIGURG)
    finally:
        signal.signal(signal.SIGURG, before)
    assert (got, stacks) == ([signal.SIGURG], {})


def test_nothing_is_sampled_in_a_thread_that_gets_no_signals():
    found = []

    def run():
        with stacks_sampled(0.001) as stacks:
            busy(0.1)
        found.append(stacks)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [{}]


def test_a_thread_that_sleeps_sleeps_on():
    with stacks_sampled(0.0005) as stacks:
        begun = time.perf_counter()
        time.sleep(0.3)
        slept = time.perf_counter() - begun
    assert slept >= 0.3
    assert stacks


@pytest.mark.nightly
def test_sampling_beside_threads_that_begin_and_end_is_safe(processes):
    """Other ways to read a stack end in a crash here within seconds."""
    code = """
import numpy as np, tensorflow as tf, time
from pytest_tfperf.capture.stack_samples import stacks_sampled
def slow(x): return np.float32(x)
def generated():
    for n in range(64): yield np.float32(n)
spec = tf.TensorSpec((), tf.float32)
with stacks_sampled(0.00002) as stacks:
    until = time.perf_counter() + 8
    while time.perf_counter() < until:
        mapped = lambda n: tf.numpy_function(slow, [n], tf.float32)
        for _ in tf.data.Dataset.range(64).map(mapped, num_parallel_calls=8).prefetch(2): pass
        for _ in tf.data.Dataset.from_generator(generated, output_signature=spec): pass
print("sampled", len(stacks) > 100)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, ["sampled", "True"]), done.stderr[-3000:]


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
            encode(0.05)

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    rows = np.ones((64, 4), np.float32)
    options = {"batch_size": 8, "epochs": 20, "verbose": 0, "warmup": 40}
    found = profile.fit(model, rows, rows[:, :1], callbacks=[Writes()], **options)
    causes = found.tables["time_causes"].records()
    of_steps = (row for row in causes if row["metric"] == "step_time")
    row = next(row for row in of_steps if "Writes" in row["where"])
    assert "on_train_batch_end at test_stack_samples.py:" in row["where"]
    assert row["seconds"] > 0.05 / 2  # its share also depends on how long Keras waits for a core
    assert "callback" in row["try"]
