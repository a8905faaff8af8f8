"""
Measure how much a full prefetch buffer hides a slow input pipeline.

    python benchmarks/prefetch.py

A producer of 12 ms, a step of 10 ms, several buffers. Each case also runs after a first step of 1.5 s, in which
the buffer fills. The truth is the share of time in `next()` over 500 steps of the same pipeline with
prefetch(1), without a profiler.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import time

import tensorflow as tf

from pytest_tfperf.plugin.fixture import TfProfile
from pytest_tfperf.plugin.options import Options
from pytest_tfperf.plugin.profiled_item import ProfiledItem
from pytest_tfperf.plugin.registry import Registry

PRODUCER_S, STEP_S, COLD_S = 0.012, 0.010, 1.5


def produce(x):
    time.sleep(PRODUCER_S)
    return x


def pipeline(buffer):
    return (
        tf.data.Dataset.range(10**9)
        .map(lambda x: tf.numpy_function(produce, [x], tf.int64))
        .prefetch(buffer)
    )


def share_without_profiler(n_steps=500):
    iterator = iter(pipeline(1))
    for _ in range(20):
        next(iterator)
        time.sleep(STEP_S)
    waited, start = 0.0, time.perf_counter()
    for _ in range(n_steps):
        asked = time.perf_counter()
        next(iterator)
        waited += time.perf_counter() - asked
        time.sleep(STEP_S)
    return waited / (time.perf_counter() - start)


def profile_of(buffer, cold_s):
    pauses = iter([cold_s])

    def step(x):
        time.sleep(next(pauses, 0) or STEP_S)

    profiler = TfProfile(ProfiledItem(None, Options(), Registry()))
    start = time.perf_counter()
    profile = profiler(step, pipeline(buffer))
    seconds = time.perf_counter() - start
    profiler.close()
    return profile, seconds


truth = share_without_profiler()
print(f"without profiler, prefetch(1), 500 steps: {truth:.3f}")
worst = 0.0
for cold_s in (0, COLD_S):
    for name, buffer in (("1", 1), ("10", 10), ("100", 100), ("AUTOTUNE", tf.data.AUTOTUNE)):
        profile, seconds = profile_of(buffer, cold_s)
        value = profile.value("input_bound")
        worst = max(worst, abs(value.number - truth))
        print(
            f"first step {cold_s or STEP_S:>5} s, prefetch({name}): input_bound {value.number:.3f} ({value.source.value}), "
            f"step_time {profile.step_time * 1e3:.1f} ms, {seconds:.1f} s"
        )
print(f"largest difference {worst:.3f}")
