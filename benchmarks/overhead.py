"""
Measure the cost of a profile besides its steps, and its effect on a step.

    python benchmarks/overhead.py

A small Keras model, fitted for as many batches with and without tf_profile in turn: the difference is everything besides the
steps (sessions, export, decoding, analysis). Then Python's calls of three steps are counted, for the CPU time of this thread. At last one
compiled step is timed before, and again after it was profiled.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import statistics
import time

import keras
import numpy as np
import tensorflow as tf

from pytest_tfperf.frameworks.in_use import start_devices
from pytest_tfperf.machine.calls import CallCounter
from pytest_tfperf.plugin.fixture import TfProfile
from pytest_tfperf.plugin.options import Options
from pytest_tfperf.plugin.profiled_item import ProfiledItem
from pytest_tfperf.plugin.registry import Registry

ROUNDS = 9
X, Y = np.random.rand(3200, 32).astype("float32"), np.random.rand(3200, 1).astype("float32")


def model_of():
    model = keras.Sequential(
        [
            keras.layers.Dense(256, activation="relu"),
            keras.layers.Dense(256, activation="relu"),
            keras.layers.Dense(1),
        ]
    )
    model.compile("adam", "mse")
    return model


def profiled():
    n_batches = [0]
    counter = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: n_batches.__setitem__(0, n_batches[0] + 1)
    )
    profiler = TfProfile(ProfiledItem(None, Options(), Registry()))
    model = model_of()
    start = time.perf_counter()
    profiler.fit(model, X, Y, batch_size=32, epochs=20, verbose=0, callbacks=[counter])
    seconds = time.perf_counter() - start
    profiler.close()
    return seconds, n_batches[0]


def plain(n_batches):
    counter = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None)
    model = model_of()
    start = time.perf_counter()
    whole, rest = divmod(n_batches, 100)
    model.fit(
        X[: 32 * (n_batches if not whole else 100)],
        Y[: 32 * (n_batches if not whole else 100)],
        batch_size=32,
        epochs=max(whole, 1),
        verbose=0,
        callbacks=[counter],
    )
    if whole and rest:
        model.fit(X[: 32 * rest], Y[: 32 * rest], batch_size=32, verbose=0, callbacks=[counter])
    return time.perf_counter() - start


def step_seconds(step, argument, n=200):
    times = []
    for _ in range(n):
        start = time.perf_counter()
        step(argument)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


start_devices()
profiled()
costs = []
for _ in range(ROUNDS):
    seconds, n_batches = profiled()
    costs.append(seconds - plain(n_batches))
print(
    f"a profile of a small Keras fit costs {statistics.median(costs) * 1e3:.0f} ms besides its {n_batches} steps (median of {ROUNDS}, from {min(costs) * 1e3:.0f} to {max(costs) * 1e3:.0f} ms)"
)


def counting_seconds(model):
    def three_steps(counter):
        start = time.thread_time()
        for _ in range(3):
            counter.begin()
            model.train_on_batch(X[:32], Y[:32])
            counter.end(1)
        return time.thread_time() - start

    plain = three_steps(CallCounter())
    counter = CallCounter()
    with counter:
        counted = three_steps(counter)
    start = time.thread_time()
    counter.found()
    return counted + time.thread_time() - start - plain


model = model_of()
counting_seconds(model)
counting = [counting_seconds(model) for _ in range(ROUNDS)]
print(
    f"counting Python's calls costs {statistics.median(counting) * 1e3:.1f} ms besides its three steps (median of {ROUNDS}, from {min(counting) * 1e3:.1f} to {max(counting) * 1e3:.1f} ms)"
)

ratios, controls = [], []
weight = tf.Variable(tf.random.normal((512, 512)))
for _ in range(ROUNDS):
    step = tf.function(lambda x: tf.reduce_sum(tf.tanh(tf.matmul(x, weight))))
    batch = tf.random.normal((256, 512))
    step_seconds(step, batch)
    first, before = step_seconds(step, batch), step_seconds(step, batch)
    profiler = TfProfile(ProfiledItem(None, Options(), Registry()))
    profiler(step, [batch])
    profiler.close()
    ratios.append(step_seconds(step, batch) / before)
    controls.append(before / first)
print(
    f"step time after profiling ÷ before: {statistics.median(ratios):.3f} (from {min(ratios):.3f} to {max(ratios):.3f}); of two plain timings: {statistics.median(controls):.3f} (from {min(controls):.3f} to {max(controls):.3f})"
)
