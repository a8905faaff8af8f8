"""
tensorflow/tensorflow#35135, #40386: `unbatch().batch(n)` of chunks takes longer than the reading.

Cause: each of 65,536 rows of a batch is copied out of its chunk, passed on and copied into the batch again. Remedy: `rebatch`, which
slices and joins chunks, or chunks of the batch's size. By hand: 30 to 40 ms of waiting for a step of 5 ms, against 0.3 ms.
"""

import pytest
import tensorflow as tf
from _step import step

EXPECTED = {
    "metric": "input_bound",
    "where": r"(?i)unbatch|flat_?map",
    "try": r"(?i)rebatch|(without|avoid|instead of|leave out|remove).*unbatch|unbatch.*(rebatch|out)|whole (chunks|batches)",
    "never": r"(?i)larger batch|num_parallel_calls|cache",
}


def chunks():
    return tf.data.Dataset.from_tensors(tf.ones((10_000, 16))).repeat(10_000)


@pytest.mark.tfperf(max_input_bound="30%")
def test_broken(tf_profile):
    tf_profile(step, chunks().unbatch().batch(65_536).prefetch(2))


@pytest.mark.tfperf(max_input_bound="30%")
def test_fixed(tf_profile):
    tf_profile(step, chunks().rebatch(65_536).prefetch(2))
