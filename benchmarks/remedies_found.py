"""
Planted bottlenecks, and whether trying remedies finds what a careful engineer would type.

For each: the change made by hand takes the same turns as the remedies. The expected remedy is found if it
is faster for sure, keeps the outputs, and is the best or among its equals (its interval reaches the best's).

    python benchmarks/remedies_found.py [NAME ...]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pytest_tfperf.capture.keras_data import KerasCall
from pytest_tfperf.frameworks.framework import JAX, TENSORFLOW
from pytest_tfperf.remedies.input import CALLS, CacheBefore, ManyCalls
from pytest_tfperf.remedies.jax import PaddedToPowers
from pytest_tfperf.remedies.remedy import Call, Remedy
from pytest_tfperf.remedies.results import Tried
from pytest_tfperf.remedies.trial import REMEDIES, try_remedies
from pytest_tfperf.results import Profile
from pytest_tfperf.values import Source, Value

LEAST_COST = 1.2
"""Speed-up by hand from which a bottleneck counts as one."""
NEAR = 0.8
"""Least part of the speed-up by hand that a bound is to show."""
SECONDS = 60.0
NOTHING_KNOWN = Profile(name="", metrics={})


@dataclass(frozen=True)
class Planted:
    """A bottleneck, the change by hand, and the remedy that is the same change."""

    slow: Call
    by_hand: Call
    remedy: str
    is_advised: bool = False
    """True if the change by hand is advised and cannot be tried; a bound is to show what it gives."""


def _call(step: Callable[..., Any], data: Any = None, framework: str = TENSORFLOW) -> Call:
    return Call(step=step, data=data, profile=NOTHING_KNOWN, framework=framework)


def _wait(number: Any) -> Any:
    time.sleep(0.005)
    return np.full(64, number, "float32")


def _read(number: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(_wait, [number], tf.float32), [64])


def sequential_map_with_python() -> Planted:
    """Python that waits in a sequential map."""
    numbers, step = tf.data.Dataset.range(320), tf.function(tf.reduce_sum)
    slow = numbers.map(_read).batch(8)
    options = tf.data.Options()
    options.threading.private_threadpool_size = CALLS
    fast = numbers.map(_read, num_parallel_calls=CALLS).batch(8).with_options(options)
    return Planted(_call(step, slow), _call(step, fast), ManyCalls.name)


def _halves(number: Any) -> Any:
    return np.array([float(int(number) * n) / 2 for n in range(3000)], "float32")


def python_that_ops_replace() -> Planted:
    """Python that computes, one call at a time, what TensorFlow ops compute too."""
    numbers, step = tf.data.Dataset.range(320), tf.function(tf.reduce_sum)
    slow = numbers.map(
        lambda n: tf.ensure_shape(tf.numpy_function(_halves, [n], tf.float32), [3000])
    ).batch(8)
    fast = numbers.map(
        lambda n: tf.cast(n, tf.float32) * tf.range(3000, dtype=tf.float32) / 2
    ).batch(8)
    name = "num_parallel_calls=tf.data.AUTOTUNE"
    return Planted(_call(step, slow), _call(step, fast), name, is_advised=True)


def _work(number: Any) -> Any:
    x = tf.random.stateless_uniform((300, 300), (1, 2)) + tf.cast(number, tf.float32)
    return tf.reduce_sum(tf.linalg.matmul(x, x), 0)


def expensive_stage() -> Planted:
    """A stage whose elements are the same in each epoch."""
    numbers, step = tf.data.Dataset.range(64), tf.function(tf.reduce_sum)
    slow = numbers.map(_work).batch(8)
    fast = slow.cache()
    for _ in fast:
        pass
    return Planted(_call(step, slow), _call(step, fast), ".cache()")


def expensive_stage_before_random_ones() -> Planted:
    """The same stage in front of a shuffle and of random numbers."""
    step = tf.function(tf.reduce_sum)

    def augmented(data: Any) -> Any:
        return data.shuffle(64).map(lambda x: x * tf.random.uniform(tf.shape(x))).batch(8)

    read = tf.data.Dataset.range(64).map(_work)
    kept = read.cache()
    for _ in kept:
        pass
    return Planted(_call(step, augmented(read)), _call(step, augmented(kept)), CacheBefore.name)


def sequential_interleave() -> Planted:
    """Sources that are read one at a time, and wait."""
    numbers, step = tf.data.Dataset.range(64), tf.function(tf.reduce_sum)

    def source(number: Any) -> Any:
        return tf.data.Dataset.range(20).map(lambda one: _read(number + one))

    slow = numbers.interleave(source, cycle_length=4).batch(8)
    fast = numbers.interleave(source, cycle_length=4, num_parallel_calls=-1).batch(8)
    name = "num_parallel_calls=tf.data.AUTOTUNE"
    return Planted(_call(step, slow), _call(step, fast), name)


def eager_loop() -> Planted:
    """Ops that Python runs one by one, which are small: XLA fuses them too."""
    x = tf.ones((8, 8))

    def step() -> Any:
        y = x
        for _ in range(100):
            y = tf.tanh(y @ x)
        return y

    by_hand = tf.function(step, jit_compile=True)
    return Planted(_call(step), _call(by_hand), "jit_compile=True")


def lost_jit() -> Planted:
    """Many small ops that XLA fuses."""
    x = tf.random.stateless_uniform((64,), (1, 2))

    @tf.function
    def step() -> Any:
        y = x
        for _ in range(300):
            y = y * 0.99 + tf.sin(y) * 0.01
        return y

    by_hand = tf.function(step.python_function, jit_compile=True)
    return Planted(_call(step), _call(by_hand), "jit_compile=True")


def numbers_that_retrace() -> Planted:
    """A Python number that is another one in each step."""
    count = [0]
    scaled = tf.function(lambda x, by: tf.reduce_sum(x * by))

    def step() -> Any:
        count[0] += 1
        return scaled(tf.ones(3), count[0] / 7)

    def by_hand() -> Any:
        count[0] += 1
        return scaled(tf.ones(3), tf.constant(count[0] / 7))

    profile = Profile(name="", metrics={"retraces": Value.of("retraces", 60, Source.COUNTED)})
    name = "tensors in place of Python's numbers"
    return Planted(replace(_call(step), profile=profile), _call(by_hand), name)


def small_steps_of_keras() -> Planted:
    import keras

    def fit(**compiled: Any) -> Call:
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
        model.compile("sgd", "mse", jit_compile=False, **compiled)
        arrays = np.ones((4096, 8), "float32"), np.ones((4096, 4), "float32")
        data = tf.data.Dataset.from_tensor_slices(arrays).batch(8)
        loop = KerasCall.of(model, "fit", (data,), {}, None)
        return replace(_call(loop.bound, loop.data()), keras=loop, settings=compiled)

    return Planted(fit(), fit(steps_per_execution=8), "compile(steps_per_execution=8)")


def unjitted_jax() -> Planted:
    """Ops of JAX that Python runs one by one."""
    import jax
    import jax.numpy as jnp

    x = jnp.ones((8, 8))

    def step() -> Any:
        y = x
        for _ in range(100):
            y = jnp.tanh(y @ x)
        return y

    return Planted(_call(step, framework=JAX), _call(jax.jit(step), framework=JAX), "@jax.jit")


def changing_shapes_in_jax() -> Planted:
    """Batches of another size in each step, and a program of XLA for each size."""
    import jax
    import jax.numpy as jnp

    count, weights = [0], jnp.ones((8, 8))
    summed = jax.jit(lambda x: jnp.tanh(x @ weights).sum())

    def batch() -> Any:
        count[0] += 1
        return np.ones((997 * count[0] % 4093 + 1, 8), "float32")  # primes: 4093 sizes

    def step() -> Any:
        return summed(batch())

    def by_hand() -> Any:
        x = batch()
        padded = np.zeros((1 << (len(x) - 1).bit_length(), 8), "float32")
        padded[: len(x)] = x
        return summed(padded)

    compiles = Value.of("xla_compiles", 60, Source.COUNTED)
    profile = Profile(name="", metrics={"xla_compiles": compiles})
    slow = replace(_call(step, framework=JAX), profile=profile)
    return Planted(slow, _call(by_hand, framework=JAX), PaddedToPowers.name)


def python_iterable() -> Planted:
    """A Python iterable that waits while the step could work."""

    class Loader:
        def __iter__(self) -> Any:
            for _ in range(400):
                time.sleep(0.008)
                yield np.float32(1)

    def step(batch: Any) -> Any:
        time.sleep(0.008)  # as a device works, beside Python
        return batch + np.float32(1)

    ahead = tf.data.Dataset.from_generator(
        lambda: iter(Loader()), output_signature=tf.TensorSpec([], tf.float32)
    ).prefetch(2)
    return Planted(_call(step, Loader()), _call(step, ahead), "a thread that loads ahead")


PLANTED = {
    one.__name__: one
    for one in (
        sequential_map_with_python,
        sequential_interleave,
        python_that_ops_replace,
        expensive_stage,
        expensive_stage_before_random_ones,
        eager_loop,
        lost_jit,
        numbers_that_retrace,
        small_steps_of_keras,
        unjitted_jax,
        changing_shapes_in_jax,
        python_iterable,
    )
}


ONE_THREAD = """
import time
import numpy as np
import tensorflow as tf

def wait(number):
    time.sleep(0.02)  # a service that answers
    return np.float32(number)

asked = tf.Variable(1.0)  # no constant, whose answers would be kept

@tf.function
def step():
    answers = [tf.numpy_function(wait, [asked + n], tf.float32, stateful=False) for n in range(4)]
    return tf.add_n(answers)

def test_step(tf_profile):
    tf_profile(step)
"""
TIMED = """
import time
from test_step import step

for _ in range(5):
    step().numpy()
began = time.perf_counter()
for _ in range(20):
    step().numpy()
print((time.perf_counter() - began) / 20)
"""


def one_thread() -> bool:
    """Try remedies of ops that wait for each other, since the environment gives them one thread."""
    slow = {**os.environ, "TF_NUM_INTEROP_THREADS": "1"}
    fast = {name: value for name, value in os.environ.items() if name != "TF_NUM_INTEROP_THREADS"}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_step.py").write_text(ONE_THREAD)

        def run(environment: Any, *arguments: str) -> str:
            command = [sys.executable, *arguments]
            done = subprocess.run(
                command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
            )
            return done.stdout

        times = [(float(run(slow, "-c", TIMED)), float(run(fast, "-c", TIMED))) for _ in range(2)]
        options = "--tfperf-try-all", "-otfperf_try_seconds=120", "--tfperf-report=run.json"
        run(slow, "-m", "pytest", "-q", *options)
        [test] = json.loads((Path(folder) / "run.json").read_text())["tests"]
    table = test["profiles"][0]["tables"]["remedies"]
    keys = [column["key"] for column in table["columns"]]
    rows = [dict(zip(keys, row, strict=True)) for row in table["rows"]]
    hand = statistics.median(before / after for before, after in times)
    measured = [
        row for row in rows if row["speedup"] and row["outputs"] in ("same", "within tolerance")
    ]
    one = next((row for row in measured if row["remedy"].startswith("thread pools")), None)
    found = one is not None and one["low"] > 1 and one["high"] >= measured[0]["low"]
    print(
        f"one_thread: {'found' if found else 'MISSED'}"
        f"{'' if hand >= LEAST_COST else ' (costs too little)'}; by hand {hand:.2f};"
        f" here {one and one['speedup']}; best: {measured and measured[0]['remedy']}"
    )
    print("\n".join(f"    {row}" for row in rows), flush=True)
    return found and hand >= LEAST_COST


class ByHand(Remedy):
    """The change by hand, which takes the same turns as the remedies."""

    name = "by hand"

    def __init__(self, planted: Planted) -> None:
        self._planted = planted
        self.kind = "input" if planted.slow.data is not None else "step"

    def applies(self, call: Call) -> bool:
        return call is self._planted.slow

    def apply(self, call: Call) -> Call:
        return replace(self._planted.by_hand, profile=call.profile)

    def saving_s(self, call: Call) -> float:
        return 1e9


def main(names: list[str]) -> int:
    """Print a line for each bottleneck; return the number of those whose remedy was not found."""
    missed = 0
    for name in names or (*PLANTED, one_thread.__name__):
        if name == one_thread.__name__:
            missed += not one_thread()
            continue
        planted = PLANTED[name]()
        remedies = try_remedies(planted.slow, SECONDS, remedies=(ByHand(planted), *REMEDIES))
        by_name = {one.remedy: one for one in remedies}
        hand, one = by_name[ByHand.name], by_name.get(planted.remedy)
        others = [o for o in remedies if o is not hand and o.is_fair]
        best = next((o for o in others if o.speedup), None)
        costs = hand.helps and bool(hand.speedup) and hand.speedup.ratio >= LEAST_COST
        found = one is not None and best is not None and _are_equal(one, best)
        if planted.is_advised:
            bounds = [_ratio(o) for o in remedies if o.is_bound and o.speedup]
            found = found and max(bounds, default=0.0) > NEAR * _ratio(hand)
        else:
            found = found and one.helps
        missed += not (found and costs)
        near = one is not None and _ratio(one) / _ratio(hand)
        print(
            f"{name}: {'found' if found else 'MISSED'}{'' if costs else ' (costs too little)'};"
            f" by hand {hand.speedup!r}; here {one and one.speedup!r}, {near:.2f} times that;"
            f" best: {best and best.remedy}; outputs {one and one.outputs};"
            f" {remedies.seconds:.0f} s",
            flush=True,
        )
        print("\n".join(f"    {line}" for line in remedies.lines()), flush=True)
    return missed


def _are_equal(one: Tried, best: Tried) -> bool:
    """Return whether the interval of a remedy reaches that of the best."""
    return _interval(one).high >= _interval(best).low


def _interval(one: Tried) -> Any:
    return one.speedup and one.speedup.interval


def _ratio(one: Tried) -> float:
    return one.speedup.ratio if one.speedup else float("nan")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
