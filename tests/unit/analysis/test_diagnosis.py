"""Remedies of the slowest stage."""

from pytest_tfperf.analysis.diagnosis import input_cause, stage_cause
from pytest_tfperf.analysis.input.stages import Stage

PREFETCH = Stage(path="Iterator::Root::Prefetch", name="Prefetch")
PARALLEL = "num_parallel_calls=tf.data.AUTOTUNE"


def remedies(name, **fields):
    stage = Stage(path=f"Iterator::Root::Prefetch::{name}", name=name, **fields)
    return stage_cause(stage, [stage, PREFETCH])["try"]


def test_only_a_sequential_stage_is_told_to_run_in_parallel():
    for name in ["Map", "MapAndBatch", "FlatMap", "Generator", "TFRecord"]:
        assert PARALLEL in remedies(name), name
        assert PARALLEL not in remedies(name, parallelism=2, parallel_calls=2), name


def test_a_parallel_stage_on_one_thread_lacks_threads_and_not_calls():
    assert PARALLEL not in remedies("ParallelMap", parallelism=1, parallel_calls=4)


def test_a_shuffle_is_not_cached_since_its_order_would_stay():
    assert remedies("ShuffleAndRepeat") == "a smaller shuffle buffer"
    assert "cache()" in remedies("Map")


def test_no_stage_is_the_slowest_where_the_trace_shows_no_work_of_any():
    cause = input_cause([Stage(path="Iterator::Root::ParallelMap", name="ParallelMap", calls=1)])
    assert "not which one is the slowest" in cause["where"]
    assert cause["try"].startswith("trace more steps")


DEVICE = Stage(path="Iterator::Root::Prefetch::Generator", name="Generator", calls=20, self_s=0.04)


def host_stage(name, self_s):
    path = f"Iterator::Root::Prefetch::Rebatch::{name}"
    return Stage(path=path, name=name, calls=10, self_s=self_s)


def test_the_host_stage_that_a_device_waits_for_is_named():
    cause = input_cause([DEVICE, host_stage("Map", 0.004), host_stage("Batch", 0.001), PREFETCH])
    assert cause["where"] == (
        "the device's own prefetch waited 2 ms an element for the host, whose stage Map (400 µs of "
        "work a call, sequential) is the slowest"
    )
    assert PARALLEL in cause["try"]


def test_a_host_that_works_less_than_a_tenth_of_the_waits_does_not_cause_them():
    cause = input_cause([DEVICE, host_stage("Map", 0.0039), PREFETCH])
    assert cause["where"].endswith("works less: handing elements over takes the time")
    assert "larger batch" in cause["try"]


def test_a_trace_without_stages_of_the_host_should_be_longer():
    assert "no stage of the host's pipeline" in input_cause([DEVICE, PREFETCH])["where"]
