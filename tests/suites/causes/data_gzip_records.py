"""
tensorflow/tensorflow#37675: reading compressed TFRecord files takes longer than training.

Cause: one thread of `TFRecordDataset` decompresses 8 MB for each batch. Remedy: files without compression, several files that are read in
parallel (`num_parallel_reads`, `interleave`), or `cache`. By hand: 34 ms of waiting for a step of 7 ms, against 0.7 ms.
"""

import numpy as np
import pytest
import tensorflow as tf
from _step import step

EXPECTED = {
    "metric": "input_bound",
    "where": r"(?i)TFRecord",
    "try": r"(?i)compress|gzip|num_parallel_reads|interleave|several files|more files|shards|cache",
    "never": r"(?i)larger batch|from_generator|map.*num_parallel_calls",
}


def batches(folder, compression):
    path = str(folder / "records")
    random = np.random.default_rng(0)
    with tf.io.TFRecordWriter(path, tf.io.TFRecordOptions(compression or None)) as writer:
        for _ in range(16):
            writer.write(random.integers(0, 100, 1_000_000, "uint8").tobytes())
    records = tf.data.TFRecordDataset(path, compression_type=compression).repeat(100)
    return records.batch(8).map(lambda rows: tf.strings.substr(rows, 0, 16)).prefetch(2)


def train(rows):
    return step(tf.cast(tf.strings.length(rows), tf.float32))


@pytest.mark.tfperf(max_input_bound="45%")
def test_broken(tf_profile, tmp_path):
    tf_profile(train, batches(tmp_path, "GZIP"))


@pytest.mark.tfperf(max_input_bound="45%")
def test_fixed(tf_profile, tmp_path):
    tf_profile(train, batches(tmp_path, ""))
