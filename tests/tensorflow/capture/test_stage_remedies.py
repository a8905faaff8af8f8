"""What real tf.data pipelines lack, by their slowest stage: the remedy of its kind, and none that is there."""

import pytest
import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep

from pytest_tfperf.advice.input_remedies import Pipeline
from pytest_tfperf.capture.input_data import stages_of
from pytest_tfperf.facts.waits import RareWaits
from pytest_tfperf.metrics.pipeline import Waiting, waiting_cause

RANGE = tf.data.Dataset.range(10**7)


@tf.function
def step(x):
    return tf.reduce_sum(x)


def slow(x):
    """The load under test: some milliseconds."""
    return tf.reduce_sum(tf.cast(tf.sort(tf.random.uniform((100_000,))) > 2, tf.int64)) + x


def cheap(x):
    return x * 2 + 1


@pytest.fixture
def told(profile):
    """Return where a pipeline is slow, and the remedy."""

    def run(title, data):
        detail = profile(step, data, name=title).value("input_capacity").detail
        return detail["where"], detail["try"]

    return run


def delayed(_):
    """The records of a file on storage that takes 3 ms to answer."""
    return tf.data.Dataset.range(4).apply(sleep(3000))


def test_the_slowest_stage_has_the_remedy_of_its_kind(told):
    where, remedy = told("interleave", RANGE.interleave(delayed, cycle_length=8).batch(4))
    assert "sequential in interleave()" in where
    assert remedy.startswith("interleave(..., num_parallel_calls=tf.data.AUTOTUNE)")
    assert "prefetch(" not in remedy  # TensorFlow puts one in


@pytest.mark.full
def test_a_cheap_function_of_each_row_is_told_to_map_batches(told):
    for title, data in {
        "fused": RANGE.map(cheap).batch(512),
        "prefetched": RANGE.map(cheap).prefetch(4).batch(512),
    }.items():
        # other processes may make some calls as long as those of a function that is not cheap
        remedies = (told(f"{title} {n}", data)[1] for n in range(3))
        assert any("batch before map" in remedy for remedy in remedies), title
    assert "batch before map" not in told("batches", RANGE.batch(512).map(cheap))[1]
    assert "batch before map" not in told("slow", RANGE.map(slow).batch(2))[1]


@pytest.mark.full
def test_what_an_interleave_runs_one_after_the_other_is_told_to_run_in_parallel(told):
    def mapped(_):
        return tf.data.Dataset.range(4).map(slow)

    for name, inner in {"delayed": delayed, "mapped": mapped}.items():
        where, remedy = told(name, RANGE.interleave(inner, cycle_length=8).batch(4))
        assert "sequential in interleave()" in where
        assert "interleave(..., num_parallel_calls=" in remedy
        assert "cache()" not in remedy  # one inside would be made anew for each input
    where, remedy = told("flat", RANGE.flat_map(delayed).batch(4))
    assert "interleave(..., num_parallel_calls=tf.data.AUTOTUNE) in place of flat_map()" in remedy
    fanned = RANGE.interleave(delayed, cycle_length=8, num_parallel_calls=8).batch(4)
    where, remedy = told("parallel", fanned)
    assert "sequential" not in where
    assert "num_parallel_calls" not in remedy


@pytest.mark.full
def test_a_prefetch_is_advised_only_where_nothing_runs_ahead_of_the_step(told):
    off = tf.data.Options()
    off.autotune.enabled = False
    ends_alone = RANGE.map(slow).batch(2).take(10**6)
    for title, data in {
        "fused, which has threads": RANGE.map(slow).batch(2),
        "parallel": RANGE.batch(1).map(slow, num_parallel_calls=2),
        "prefetch of TensorFlow": ends_alone,
        "prefetch of the user": ends_alone.with_options(off).prefetch(2),
    }.items():
        assert "prefetch(" not in told(title, data)[1], title
    assert "end the pipeline with prefetch(" in told("none", ends_alone.with_options(off))[1]


def test_the_start_of_an_epoch_is_explained_by_what_the_data_define():
    rare = RareWaits(n=5, n_calls=50, longest_s=1.0, usual_s=0.01, begin_epochs=True, first=False)

    def cause(data):
        waiting = Waiting(
            wait_s=0.1,
            step_s=0.2,
            traced_wait_s=0.1,
            traced_step_s=0.2,
            n_steps=10,
            rare=rare,
            pipeline=Pipeline(stages=(), recorded=stages_of(data)),
        )
        return waiting_cause(waiting)

    data = tf.data.Dataset.range(64)
    found = cause(data.map(slow).skip(32).batch(4))
    assert "skip() drops elements that stages before it have made" in found["where"]
    assert found["try"].startswith("skip() before these stages")
    found = cause(data.map(slow).shuffle(64).batch(4))
    assert "shuffle() fills its buffer" in found["where"]
    assert found["try"].startswith("shuffle before map")
    found = cause(data.shuffle(64).map(slow).batch(4))
    assert found["try"].startswith("a smaller shuffle buffer")
    assert "skip" not in str(cause(data.skip(32).map(slow).batch(4)))
    assert "shuffle" not in str(cause(data.map(slow).batch(4)))


@pytest.mark.full
def test_a_filter_that_drops_most_of_what_a_stage_makes_goes_before_it(told):
    wanted = RANGE.map(slow).filter(lambda n: n % 10 == 0)
    assert "filter before it: the filter behind it keeps " in told("late", wanted.batch(2))[1]
    early = RANGE.filter(lambda n: n % 10 == 0).map(slow)
    most = RANGE.map(slow).filter(lambda n: n % 10 != 0)
    for title, data in {"early": early, "most": most}.items():
        assert "filter before" not in told(title, data.batch(2))[1], title


@pytest.mark.full
def test_batches_that_are_taken_apart_and_joined_again_are_rebatched(profile):
    chunks = tf.data.Dataset.from_tensors(tf.ones((5000, 16))).repeat(10_000)
    rows = chunks.unbatch()
    for title, data, remedy in [
        ("joined", rows.batch(20_000), "rebatch(n)"),
        ("shuffled", rows.shuffle(100).batch(20_000), "leave unbatch() out"),
    ]:
        detail = profile(step, data, name=title).value("input_bound").detail
        assert "Unbatch hands on the 20,000 rows of a step one by one" in detail["where"], title
        assert remedy in detail["try"], title
