"""
Measure whether the probe leaves a step as fast as it was.

    python benchmarks/probe.py

Three steps: a Keras training step, a function of many small ops, and one that XLA compiles. In a round a block of
steps is timed before and after a probe, or after nothing, in random order. The result is the ratio after ÷
before with its 99 % interval.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gc
import math
import random
import time

import keras
import numpy as np
import tensorflow as tf

from pytest_tfperf.compiler.step_calls import probed
from pytest_tfperf.compiler.step_graph import inspect_graph
from pytest_tfperf.frameworks.in_use import start_devices, synchronise
from pytest_tfperf.stats.signed_rank import ratio_interval
from pytest_tfperf.values import Unknown

ROUNDS, BLOCK_S = 40, 0.15
X, Y = np.random.rand(32, 64).astype("float32"), np.random.rand(32, 1).astype("float32")


def keras_step():
    model = keras.Sequential([keras.layers.Dense(512, activation="relu"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return lambda: model.train_on_batch(X, Y)


def many_ops():
    def body(x):
        for _ in range(200):
            x = tf.tanh(x + 0.1)
        return x

    step, x = tf.function(body), tf.ones((32, 32))
    return lambda: step(x)


def compiled():
    weight = tf.Variable(tf.random.normal((512, 512)))
    step, x = (
        tf.function(lambda x: tf.reduce_sum(tf.tanh(tf.matmul(x, weight))), jit_compile=True),
        tf.random.normal((256, 512)),
    )
    return lambda: step(x)


def seconds_of(step, n_steps):
    gc.collect()  # what the probe left is not the step's
    step()
    synchronise()
    start = time.perf_counter()
    for _ in range(n_steps):
        step()
    synchronise()
    return (time.perf_counter() - start) / n_steps


def probe(step):
    with probed() as seen:
        step()
    assert not isinstance(inspect_graph(seen).graph, Unknown)
    step()


def logs_of(step):
    """Log ratios after ÷ before, with a probe and with nothing in between."""
    for _ in range(300):
        step()
    n_steps = max(3, math.ceil(BLOCK_S / seconds_of(step, 50)))
    logs = {True: [], False: []}
    for _ in range(ROUNDS):
        for between in random.sample((True, False), 2):
            before = seconds_of(step, n_steps)
            if between:
                probe(step)
            else:
                step()
                step()
            logs[between].append(math.log(seconds_of(step, n_steps) / before))
    return logs


def shown(logs):
    interval = ratio_interval(logs, 0.99)
    return f"{interval.ratio:.3f} ({interval.low:.3f} to {interval.high:.3f})"


start_devices()
gc.disable()
for make in (keras_step, many_ops, compiled):
    logs = logs_of(make())
    print(
        f"{make.__name__}: step time after a probe ÷ before {shown(logs[True])}; after nothing {shown(logs[False])}",
        flush=True,
    )
