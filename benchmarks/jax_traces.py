"""
Measure how long JAX's profiler takes to stop, with and without JAX's copy of the trace as JSON.

    python benchmarks/jax_traces.py

Each round traces as many calls of one compiled function twice, in random order. Once JAX exports the trace, and
once the plugin writes it. The result is the ratio without ÷ with JSON, with its 99 % interval, and that of the
bytes written.
"""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import math
import random
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

from pytest_tfperf.frameworks.jax import Jax
from pytest_tfperf.stats.signed_rank import ratio_interval

ROUNDS, CALLS = 20, (100, 1_000, 10_000)
X = np.ones((8, 8), "float32")
product = jax.jit(lambda x: x @ x)


def start_plain(folder):
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    jax.profiler.start_trace(str(folder), profiler_options=options)


WAYS = {
    "with": (start_plain, jax.profiler.stop_trace),
    "without": (Jax().start_trace, Jax().stop_trace),
}


def stopped(way, n_calls):
    """Return the seconds of the stop, and the bytes that it wrote."""
    start, stop = WAYS[way]
    with tempfile.TemporaryDirectory() as folder:
        start(Path(folder))
        for _ in range(n_calls):
            result = product(X)
        result.block_until_ready()
        began = time.perf_counter()
        stop()
        seconds = time.perf_counter() - began
        return seconds, sum(one.stat().st_size for one in Path(folder).rglob("*") if one.is_file())


product(X).block_until_ready()
for n_calls in CALLS:
    logs, sizes = [], []
    for _ in range(ROUNDS):
        found = {way: stopped(way, n_calls) for way in random.sample(list(WAYS), 2)}
        logs.append(math.log(found["without"][0] / found["with"][0]))
        sizes.append(found["without"][1] / found["with"][1])
    ratio = ratio_interval(logs, 0.99)
    print(
        f"{n_calls} calls: time {ratio.ratio:.2f} ({ratio.low:.2f} to {ratio.high:.2f}), "
        f"bytes {np.median(sizes):.2f}",
        flush=True,
    )
