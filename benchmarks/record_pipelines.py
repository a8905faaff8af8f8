"""
Record traces of real pipelines that steps wait for, one for each kind of advice.

    python benchmarks/record_pipelines.py            # writes benchmarks/data/pipelines/*.xplane.pb.gz
    python benchmarks/record_pipelines.py --calls    # prints what a call of a mapped function costs

Each trace has ten steps that only fetch an element. `benchmarks/thresholds.py` reads them.
"""

import argparse
import gzip
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

FOLDER = Path(__file__).parent / "data" / "pipelines"
N_STEPS, BATCH, REPEATS = 10, 256, 5


def numbers():
    return tf.data.Dataset.range(10**9)


def double(x):
    return tf.cast(x, tf.float32) * 2


def compute(x):
    return tf.reduce_sum(tf.random.normal((300, 300))) + tf.cast(x, tf.float32)


def straggle(x):
    def work(x):
        time.sleep(40e-3 if int(x) % 8 == 0 else 0.5e-3)
        return x

    return tf.numpy_function(work, [x], tf.int64)


def with_threads(data, n):
    options = tf.data.Options()
    options.threading.private_threadpool_size = n
    return data.with_options(options)


def images():
    pixels = np.random.default_rng(0).integers(0, 255, (200, 200, 3), np.uint8)
    return tf.data.Dataset.from_tensors(tf.io.encode_jpeg(pixels)).repeat()


def records():
    folder = tempfile.mkdtemp()
    paths = [f"{folder}/{number}.tfrecord" for number in range(40)]
    for path in paths:
        with tf.io.TFRecordWriter(path) as writer:
            writer.write(b"x" * 1000)
            writer.write(b"y" * 1000)
    return tf.data.TFRecordDataset(paths).repeat()


PIPELINES = {
    "shuffle": lambda: numbers().map(compute).shuffle(50).batch(4),
    "vectorize": lambda: numbers().map(double).batch(32),
    "decode": lambda: images().map(tf.io.decode_jpeg).batch(4),
    "python": lambda: numbers().map(straggle).batch(2),
    "files": lambda: records().batch(4),
    "order": lambda: with_threads(numbers().map(straggle, num_parallel_calls=4), 4),
    "threads": lambda: with_threads(numbers().map(compute, num_parallel_calls=4), 1).batch(4),
    "compute": lambda: numbers().map(compute, num_parallel_calls=4).batch(4),
}


def record(name, folder):
    """Trace steps that fetch, from the first one on where a shuffle buffer fills."""
    iterator = iter(PIPELINES[name]())
    for _ in range(0 if name == "shuffle" else 5):
        next(iterator)
    with tempfile.TemporaryDirectory() as logdir:
        tf.profiler.experimental.start(logdir)
        for number in range(N_STEPS):
            with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
                next(iterator)
        tf.profiler.experimental.stop()
        (path,) = Path(logdir).glob("plugins/profile/*/*.xplane.pb")
        content = gzip.compress(path.read_bytes(), mtime=0)
    (folder / f"{name}.xplane.pb.gz").write_bytes(content)
    return iterator


def seconds_of_an_element(data, n=50):
    """Return the least mean seconds of an element of a batch, without the profiler."""
    iterator, least = iter(data.prefetch(2)), float("inf")
    for _ in range(20):
        next(iterator)
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(n):
            next(iterator)
        least = min(least, (time.perf_counter() - start) / n / BATCH)
    return least


def print_calls():
    """Print what an element costs whose function doubles a number."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    apart = numbers().map(double).batch(BATCH).with_options(options)
    for name, data in {
        "map, then batch": numbers().map(double).batch(BATCH),
        "map in parallel, then batch": numbers().map(double, tf.data.AUTOTUNE).batch(BATCH),
        "map, then batch, not fused": apart,
        "batch, then map": numbers().batch(BATCH).map(double),
        "batch alone": numbers().batch(BATCH),
    }.items():
        print(f"{name}: {seconds_of_an_element(data) * 1e6:.1f} µs an element")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Record traces of pipelines.")
    parser.add_argument("--calls", action="store_true", help="measure the cost of calls instead")
    if parser.parse_args().calls:
        print_calls()
    else:
        FOLDER.mkdir(parents=True, exist_ok=True)
        kept = [record(name, FOLDER) for name in PIPELINES]
    sys.stdout.flush()
    os._exit(0)  # destructors of iterators may stand still for a minute
