"""Advice on real pipelines of tf.data: each kind where it applies, and where it does not."""

import time

import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.advice import guides
from pytest_tfperf.advice.thresholds import THRESHOLDS
from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.profile import profile_of
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import read_trace

N_STEPS = 10


@pytest.fixture
def advised(tmp_path):
    """Trace steps that only fetch an element, and return the advice by its page of a guide."""

    def advise(data, warm_up=5, n_steps=N_STEPS):
        iterator = iter(data)
        for _ in range(warm_up):
            next(iterator)
        folder = tmp_path / str(time.monotonic_ns())
        tf.profiler.experimental.start(str(folder))
        for number in range(n_steps):
            with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
                next(iterator)
        tf.profiler.experimental.stop()
        KEPT.append(iterator)
        (path,) = folder.glob("plugins/profile/*/*.xplane.pb")
        recording = Recording(name="", trace=path, workload={}, bare=True)
        profile = profile_of(Evidence(recording, read_trace(path)))
        assert profile.value("input_bound").number >= THRESHOLDS.input
        mean_s = sum(step.period_s for step in profile.steps) / n_steps
        assert all(one.win_s is None or one.win_s <= mean_s for one in profile.advice)
        return {one.read: one for one in profile.advice}

    return advise


KEPT = []
"""Iterators; the destructor of one may stand still for a minute."""


def slow(ms, n=10**6):
    """Elements whose function computes for some milliseconds."""
    size = int(600 * ms**0.5)
    return tf.data.Dataset.range(n).map(
        lambda x: tf.reduce_sum(tf.random.normal((size, size))) + tf.cast(x, tf.float32)
    )


class TestShuffle:
    def test_a_buffer_of_mapped_elements_fills_in_the_first_step(self, advised):
        found = advised(slow(0.2).shuffle(100).batch(4).prefetch(1), warm_up=0)
        assert "shuffle before map" in found[guides.SHUFFLING].what
        assert "buffer of 100 elements" in found[guides.SHUFFLING].because

    @pytest.mark.full
    def test_a_buffer_of_batches(self, advised):
        source = tf.data.Dataset.range(10**6).batch(64).shuffle(1000)
        assert "shuffle before batch" in advised(source, warm_up=0)[guides.SHUFFLING].what

    @pytest.mark.full
    def test_a_full_buffer_gets_no_advice(self, advised):
        assert guides.SHUFFLING not in advised(slow(0.2).shuffle(100).batch(4).prefetch(1))


class TestVectorize:
    def test_cheap_functions_of_elements(self, advised):
        data = tf.data.Dataset.range(10**7).map(lambda x: tf.cast(x, tf.float32) * 2).batch(256)
        # the mean of a call holds the pauses of a busy machine, so there are three looks
        looks = (advised(data).get(guides.VECTORIZING) for _ in range(3))
        assert any(one is not None and "batch before map" in one.what for one in looks)

    @pytest.mark.full
    def test_the_same_of_batches_gets_no_advice(self, advised):
        data = tf.data.Dataset.range(10**9).batch(4000).map(lambda x: tf.cast(x, tf.float32) * 2)
        assert guides.VECTORIZING not in advised(data)

    @pytest.mark.full
    def test_expensive_functions_get_no_advice(self, advised):
        assert guides.VECTORIZING not in advised(slow(1).batch(4))


def jpegs():
    pixels = np.random.default_rng(0).integers(0, 255, (300, 300, 3), np.uint8)
    return tf.data.Dataset.from_tensors(tf.io.encode_jpeg(pixels)).repeat()


class TestPrepare:
    def test_decoding_in_every_epoch(self, advised):
        found = advised(jpegs().map(tf.io.decode_jpeg).batch(8))[guides.SAVING]
        assert "decodes in every epoch" in found.because

    def test_python_in_every_epoch(self, advised):
        def load(x):
            time.sleep(2e-3)
            return x

        data = tf.data.Dataset.range(10**6).map(lambda x: tf.numpy_function(load, [x], tf.int64))
        assert "runs Python in every epoch" in advised(data.batch(4))[guides.SAVING].because

    @pytest.mark.full
    def test_arithmetic_gets_no_advice(self, advised):
        assert guides.SAVING not in advised(slow(1).batch(4))

    @pytest.mark.full
    def test_nor_do_images_that_are_cached(self, advised):
        image = jpegs().take(1).map(tf.io.decode_jpeg).cache().repeat()
        assert guides.SAVING not in advised(image.batch(64))


def record_files(folder, n_files, n_records):
    paths = [str(folder / f"{number}.tfrecord") for number in range(n_files)]
    for path in paths:
        with tf.io.TFRecordWriter(path) as writer:
            for _ in range(n_records):
                writer.write(b"x" * 1000)
    return paths


class TestFiles:
    @pytest.mark.skipif(
        tf.__version__.startswith("2.18."),
        reason="2.18 traces no opening of files (SetupStreamsLocked)",
    )
    @pytest.mark.parametrize("interleaved", [False, pytest.param(True, marks=pytest.mark.full)])
    def test_many_small_files(self, advised, tmp_path, interleaved):
        paths = record_files(tmp_path, n_files=200, n_records=2)
        data = tf.data.TFRecordDataset(paths)
        if interleaved:
            data = tf.data.Dataset.from_tensor_slices(paths).interleave(
                tf.data.TFRecordDataset, cycle_length=2, num_parallel_calls=2
            )
        found = advised(data.repeat().batch(16))[guides.READING]
        assert "fewer and larger files" in found.what
        assert " files of " in found.because

    @pytest.mark.full
    def test_one_large_file_gets_no_advice(self, advised, tmp_path):
        data = tf.data.TFRecordDataset(record_files(tmp_path, n_files=1, n_records=20_000))
        assert guides.READING not in advised(data.batch(512))


def stragglers(deterministic):
    """Elements of which every eighth takes long."""

    def work(x):
        seconds = 40e-3 if int(x) % 8 == 0 else 0.5e-3
        time.sleep(seconds)
        return x

    data = tf.data.Dataset.range(10**6).map(
        lambda x: tf.numpy_function(work, [x], tf.int64),
        num_parallel_calls=4,
        deterministic=deterministic,
    )
    options = tf.data.Options()
    options.threading.private_threadpool_size = 4
    return data.with_options(options)


class TestOrder:
    """Traces of 48 steps, so that several of the six long runs start and end in each."""

    def test_results_that_wait_for_a_long_run(self, advised):
        advice = advised(stragglers(deterministic=True), n_steps=48)
        assert "deterministic" in advice[guides.SOURCES].what

    @pytest.mark.full
    def test_without_the_order_there_is_no_advice(self, advised):
        assert guides.SOURCES not in advised(stragglers(deterministic=False), n_steps=48)


class TestThreads:
    def data(self, threads):
        mapped = tf.data.Dataset.range(10**6).map(
            lambda x: tf.reduce_sum(tf.random.normal((600, 600))) + tf.cast(x, tf.float32),
            num_parallel_calls=4,
        )
        options = tf.data.Options()
        options.threading.private_threadpool_size = threads
        return mapped.batch(4).with_options(options)

    def test_a_pool_of_one_thread_on_a_larger_machine(self, advised):
        found = advised(self.data(threads=1))
        assert "private_threadpool_size = " in found[guides.THREADS].what

    @pytest.mark.full
    def test_a_pool_of_all_cores_gets_no_advice(self, advised):
        assert guides.THREADS not in advised(self.data(threads=0))
