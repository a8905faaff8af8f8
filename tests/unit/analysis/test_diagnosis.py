"""Remedies of the slowest stage."""

import pytest

from pytest_tfperf.analysis.diagnosis import stage_cause
from pytest_tfperf.analysis.input.stages import Stage

PREFETCH = Stage(path="Iterator::Root::Prefetch", name="Prefetch")
PARALLEL = "num_parallel_calls=tf.data.AUTOTUNE"


def remedies(name, **fields):
    stage = Stage(path=f"Iterator::Root::Prefetch::{name}", name=name, **fields)
    return stage_cause(stage, [stage, PREFETCH])["try"]


@pytest.mark.parametrize("name", ["Map", "MapAndBatch", "FlatMap", "Generator", "TFRecord"])
def test_only_a_sequential_stage_is_told_to_run_in_parallel(name):
    assert PARALLEL in remedies(name)
    assert PARALLEL not in remedies(name, parallelism=2, parallel_calls=2)


def test_a_parallel_stage_on_one_thread_lacks_threads_and_not_calls():
    assert PARALLEL not in remedies("ParallelMap", parallelism=1, parallel_calls=4)


def test_a_shuffle_is_not_cached_since_its_order_would_stay():
    assert remedies("ShuffleAndRepeat") == "a smaller shuffle buffer"
    assert "cache()" in remedies("Map")
