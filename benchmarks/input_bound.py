"""
Compare input_bound with the share of the step spent in `next()`, measured without a profiler.

    python benchmarks/input_bound.py [ROUNDS] [PIPELINE …]

A round runs twelve input pipelines, each in a fresh process: in a bare loop, profiled, and in a bare loop again. Shown are
medians over the rounds:

    period       milliseconds of a step in the bare loops
    next()       share of the step in `next()`, in the bare loops
    from, to     the least and the largest such share of all bare loops
    input_bound  the plugin's value
    difference   input_bound less the share of the two bare loops of its process
    ready        share that `next()` would take if its element stood ready in a prefetch buffer, which is no wait
    step_time    the plugin's value ÷ period
"""

import dataclasses
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

N_STEPS, N_WARM_UP, N_READY, FILLING_S = 100, 30, 60, 2.5
WORDS = ["the", "step", "waits", "for", "its", "input", "while", "a", "thread", "splits", "words"]
KEPT = []  # until the process exits


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """An input pipeline, and what consumes it."""

    data: Any
    """Data of the steps."""
    step: Callable[..., Any] | None = None
    """The step."""
    model: Any = None
    """A Keras model that is fitted instead."""
    distributed: Callable[[Any], Any] = lambda data: data
    """Gives the data to replicas."""

    @property
    def feed(self) -> Any:
        """The data as the steps iterate over them."""
        return self.distributed(self.data)


def naive(folder: str) -> Pipeline:
    """A generator that sleeps for 15 ms an example; TensorFlow adds a prefetch."""
    return Pipeline(data=slow_examples(0.015), step=sleep_for(0.010))


def prefetch(folder: str) -> Pipeline:
    """The same with a prefetch of its own."""
    return Pipeline(data=slow_examples(0.015).prefetch(2), step=sleep_for(0.010))


def slow_map(folder: str) -> Pipeline:
    """A Python function of 30 ms."""
    return Pipeline(data=numbers().map(slow_function(0.030)), step=sleep_for(0.010))


def parallel_map(folder: str) -> Pipeline:
    """A Python function of 45 ms in two threads."""
    data = numbers().map(slow_function(0.045), num_parallel_calls=2)
    return Pipeline(data=data, step=sleep_for(0.010))


def generator(folder: str) -> Pipeline:
    """A generator of 30 ms, batched and prefetched."""
    return Pipeline(data=slow_examples(0.030).batch(1).prefetch(2), step=sleep_for(0.015))


def service(folder: str) -> Pipeline:
    """A worker of the tf.data service that takes 30 ms."""
    from tensorflow.data.experimental import service as tf_service

    dispatcher = tf_service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    worker = tf_service.WorkerServer(tf_service.WorkerConfig(dispatcher_address=address))
    KEPT.extend([dispatcher, worker])
    distributed = tf_service.distribute("parallel_epochs", dispatcher.target)
    data = numbers().map(slow_function(0.030)).apply(distributed)
    return Pipeline(data=data, step=sleep_for(0.006))


def py_dataset(folder: str) -> Pipeline:
    """A PyDataset of Keras with two workers, 50 ms a batch."""
    import keras
    import numpy as np

    class Slow(keras.utils.PyDataset):
        def __len__(self):
            return 10**6

        def __getitem__(self, n):
            time.sleep(0.050)
            return np.ones((32, 64), "float32"), np.ones((32, 1), "float32")

    layers = [keras.layers.Dense(512, "relu"), keras.layers.Dense(512), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((64,)), *layers])
    model.compile("sgd", "mse")
    return Pipeline(data=Slow(workers=2, max_queue_size=4), model=model)


def records(folder: str) -> Pipeline:
    """JPEG images in TFRecords of four files, interleaved and decoded."""
    import tensorflow as tf

    paths = [f"{folder}/{n}.tfrecord" for n in range(4)]
    for n, path in enumerate(paths):
        with tf.io.TFRecordWriter(path) as writer:
            for i in range(64):
                image = tf.random.stateless_uniform((64, 64, 3), (n, i), maxval=256, dtype=tf.int32)
                writer.write(tf.io.encode_jpeg(tf.cast(image, tf.uint8)).numpy())

    def decoded(record):
        image = tf.io.decode_jpeg(record, channels=3)
        return tf.cast(tf.ensure_shape(image, (64, 64, 3)), tf.float32) / 255

    files = tf.data.Dataset.from_tensor_slices(paths).repeat()
    data = files.interleave(tf.data.TFRecordDataset, cycle_length=4).map(decoded)
    return Pipeline(data=data.batch(96), step=on_images(64))


def augmentation(folder: str) -> Pipeline:
    """Images that are cropped, flipped and changed in contrast, in parallel."""
    import tensorflow as tf

    images = tf.random.stateless_uniform((256, 64, 64, 3), (1, 2))

    def augmented(n):
        image = tf.image.random_crop(images[n % 256], (48, 48, 3))
        image = tf.image.random_flip_left_right(image)
        return tf.image.random_contrast(image, 0.5, 1.5)

    data = numbers().map(augmented, num_parallel_calls=tf.data.AUTOTUNE)
    return Pipeline(data=data.batch(128).prefetch(tf.data.AUTOTUNE), step=on_images(48))


def buckets(folder: str) -> Pipeline:
    """Sequences in batches of similar lengths."""
    import tensorflow as tf

    lengths = tf.random.stateless_uniform((512,), (1, 2), 4, 128, tf.int32)

    def ids(n):
        shape = lengths[n % 512][None]
        return tf.random.stateless_uniform(shape, (n, 1), maxval=1000, dtype=tf.int32)

    data = numbers().map(ids)
    data = data.bucket_by_sequence_length(
        tf.size, bucket_boundaries=[32, 64, 96], bucket_batch_sizes=[128] * 4
    )
    return Pipeline(data=data, step=on_tokens(1000))


def text(folder: str) -> Pipeline:
    """Sentences that become token ids, in batches."""
    import keras
    import tensorflow as tf

    words = tf.constant(WORDS)
    layer = keras.layers.TextVectorization(output_sequence_length=100, vocabulary=sorted(WORDS))

    def sentence(n):
        drawn = tf.random.stateless_uniform((200,), (n, 1), maxval=len(WORDS), dtype=tf.int32)
        return tf.strings.reduce_join(tf.gather(words, drawn), separator=" ")

    return Pipeline(data=numbers().map(sentence).batch(64).map(layer), step=on_tokens(100))


def mirrored(folder: str) -> Pipeline:
    """Batches of arrays for a MirroredStrategy."""
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    images = tf.random.stateless_uniform((512, 28, 28, 1), (1, 2))
    data = tf.data.Dataset.from_tensor_slices(images).repeat().shuffle(512).batch(64)
    dense = network(784, 512, 10)

    def replica_step(x):
        return dense(tf.reshape(x, (-1, 784)))

    return Pipeline(
        data=data,
        step=tf.function(lambda batch: strategy.run(replica_step, (batch,))),
        distributed=strategy.experimental_distribute_dataset,
    )


PIPELINES = {
    make.__name__: make
    for make in (
        *(naive, prefetch, slow_map, parallel_map, generator, service, py_dataset),
        *(records, augmentation, buckets, text, mirrored),
    )
}


def numbers() -> Any:
    import tensorflow as tf

    return tf.data.Dataset.range(10**9)


def slow_examples(seconds: float) -> Any:
    """Numbers of a Python generator that sleeps."""
    import tensorflow as tf

    def examples() -> Iterator[int]:
        for n in itertools.count():
            time.sleep(seconds)
            yield n

    return tf.data.Dataset.from_generator(examples, output_signature=tf.TensorSpec((), tf.int64))


def slow_function(seconds: float) -> Callable[[Any], Any]:
    """A function for a map that sleeps in Python."""
    import tensorflow as tf

    def function(x):
        time.sleep(seconds)
        return x

    return lambda x: tf.ensure_shape(tf.numpy_function(function, [x], tf.int64), ())


def sleep_for(seconds: float) -> Callable[..., None]:
    """A step that sleeps."""
    return lambda *_: time.sleep(seconds)


def network(*sizes: int) -> Callable[[Any], Any]:
    """The loss of a dense network on the last axis."""
    import tensorflow as tf

    kernels = [
        tf.random.stateless_normal(shape, (3, 4)) * 0.05 for shape in itertools.pairwise(sizes)
    ]

    def loss(x):
        for kernel in kernels:
            x = tf.tanh(x @ kernel)
        return tf.reduce_mean(x)

    return loss


def on_images(size: int) -> Callable[[Any], Any]:
    """A step on square images."""
    import tensorflow as tf

    dense = network(size * 3, 128, 64)
    return tf.function(lambda images: dense(tf.reshape(images, (-1, size * 3))))


def on_tokens(n_words: int) -> Callable[[Any], Any]:
    """A step on rows of token ids, of any length."""
    import tensorflow as tf

    table, dense = tf.random.stateless_normal((n_words, 64), (1, 2)), network(64, 64, 32)
    return tf.function(lambda ids: dense(tf.gather(table, ids)), reduce_retracing=True)


def bare(pipeline: Pipeline) -> tuple[float, float]:
    """The share of `next()` and the seconds of a step, without a profiler."""
    return looped(pipeline) if pipeline.model is None else fitted(pipeline)


def looped(pipeline: Pipeline) -> tuple[float, float]:
    iterator = iter(pipeline.feed)
    for _ in range(N_WARM_UP):
        pipeline.step(next(iterator))
    waited, start = 0.0, time.perf_counter()
    for _ in range(N_STEPS):
        asked = time.perf_counter()
        element = next(iterator)
        waited += time.perf_counter() - asked
        pipeline.step(element)
    seconds = time.perf_counter() - start
    return waited / seconds, seconds / N_STEPS


def fitted(pipeline: Pipeline) -> tuple[float, float]:
    """The same of a Keras loop, by timestamps around the fetch in the graph of a step."""
    import keras
    import tensorflow as tf

    model, waited, times = pipeline.model, tf.Variable(0.0, dtype=tf.float64), []

    @tf.function
    def step(iterator):
        asked = tf.timestamp()
        with tf.control_dependencies([asked]):
            batch = next(iterator)
        with tf.control_dependencies(tf.nest.flatten(batch)):
            waited.assign_add(tf.timestamp() - asked)
        return model.train_step(batch)

    def note(batch, logs):
        if batch in (N_WARM_UP, N_WARM_UP + N_STEPS):
            times.append((time.perf_counter(), float(waited)))

    model.make_train_function = lambda force=False: setattr(model, "train_function", step)
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=note)
    n_steps = N_WARM_UP + N_STEPS + 1
    model.fit(pipeline.data, steps_per_epoch=n_steps, verbose=0, callbacks=[callback])
    del model.make_train_function
    model.train_function = None
    (start, before), (end, after) = times
    return (after - before) / (end - start), (end - start) / N_STEPS


def profiled(pipeline: Pipeline) -> Any:
    """The profile of the pipeline's steps."""
    from pytest_tfperf.plugin.fixture import TfProfile
    from pytest_tfperf.plugin.options import Options
    from pytest_tfperf.plugin.profiled_item import ProfiledItem
    from pytest_tfperf.plugin.registry import Registry

    profiler = TfProfile(ProfiledItem(None, Options(), Registry()))
    if pipeline.model is None:
        found = profiler(pipeline.step, pipeline.feed)
    else:
        found = profiler.fit(pipeline.model, pipeline.data, verbose=0)
    profiler.close()
    return found


def ready_seconds(pipeline: Pipeline) -> float | None:
    """Seconds of a `next()` whose element stands in a prefetch buffer; None in a Keras loop."""
    if pipeline.model is not None:
        return None
    data = pipeline.data.prefetch(N_READY)
    iterator = iter(dataclasses.replace(pipeline, data=data).feed)
    element = next(iterator)
    time.sleep(FILLING_S)
    times = []
    for _ in range(N_READY - 2):
        pipeline.step(element)
        asked = time.perf_counter()
        element = next(iterator)
        times.append(time.perf_counter() - asked)
    return statistics.median(times[N_READY // 3 :])


def keep_iterators() -> None:
    """Keep every iterator of a dataset, since its destructor may wait for a minute."""
    import tensorflow as tf

    def keep(owner):
        original = owner.__iter__

        def kept(data):
            KEPT.append(original(data))
            return KEPT[-1]

        owner.__iter__ = kept

    keep(tf.data.Dataset)
    keep(tf.distribute.DistributedDataset)


def measure(name: str) -> None:
    """Measure one pipeline once, and print the numbers as JSON."""
    keep_iterators()
    with tempfile.TemporaryDirectory() as folder:
        pipeline = PIPELINES[name](folder)
        before, period = bare(pipeline)
        profile = profiled(pipeline)
        after, later = bare(pipeline)
        period = (period + later) / 2
        ready = ready_seconds(pipeline)
        found = {
            "shares": [before, after],
            "period": period,
            "bound": profile.input_bound,
            "source": profile.value("input_bound").source.value,
            "ready": None if ready is None else ready / period,
            "step_time": profile.step_time / period,
        }
    print(json.dumps(found), flush=True)
    os._exit(0)


def round_of(name: str) -> dict[str, Any]:
    """The numbers of one pipeline, measured in a process of its own."""
    command = [sys.executable, __file__, "--measure", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def row(name: str, rounds: list[dict[str, Any]]) -> str:
    """A row of the table."""

    def middle(values):
        return statistics.median(values)

    bare_shares = [share for one in rounds for share in one["shares"]]
    differences = [one["bound"] - statistics.mean(one["shares"]) for one in rounds]
    ready = [one["ready"] for one in rounds if one["ready"] is not None]
    return (
        f"{name:13}{middle(one['period'] for one in rounds) * 1e3:7.1f}"
        f"{middle(bare_shares):8.3f}{min(bare_shares):7.3f}{max(bare_shares):7.3f}"
        f"{middle(one['bound'] for one in rounds):12.3f}{middle(differences):+11.3f}"
        f"{middle(ready) if ready else float('nan'):8.3f}"
        f"{middle(one['step_time'] for one in rounds):10.3f}  {rounds[-1]['source']}"
    )


def main() -> None:
    n_rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in sys.argv[2:] or PIPELINES}
    start = time.perf_counter()
    try:
        for n_round in range(n_rounds):
            for name, rounds in found.items():
                rounds.append(round_of(name))
            load, minutes = os.getloadavg()[0], (time.perf_counter() - start) / 60
            print(f"round {n_round + 1}: load average {load:.1f}, {minutes:.1f} min", flush=True)
    except KeyboardInterrupt:
        print("interrupted: the medians are of the rounds so far")
    print(
        f"{'':13}{'period':>7}{'next()':>8}{'from':>7}{'to':>7}{'input_bound':>12}{'difference':>11}"
        f"{'ready':>8}{'step_time':>10}"
    )
    for name, rounds in found.items():
        if rounds:
            print(row(name, rounds))


if __name__ == "__main__":
    measure(sys.argv[2]) if sys.argv[1:2] == ["--measure"] else main()
