"""FLOPs of steps with sums over segments, counted by hand."""

import pytest
import tensorflow as tf

from pytest_tfperf.compiler.lower import lower
from pytest_tfperf.compiler.step_calls import calls_recorded
from pytest_tfperf.hlo.cost import module_costs

X, IDS, OTHERS = tf.ones((6, 4)), tf.constant([0, 0, 1, 3, 3, 3]), tf.constant([0, 0, 1, 2, 2, 2])
W = tf.Variable(tf.ones((4, 4)))
SUM, PRODUCT = 6 * 4, 2 * 4 * 4  # of all elements; of one row with W
outer_sum = tf.math.segment_sum
called = tf.function(lambda x, ids: tf.math.segment_sum(x, ids + 0))


def flops_of(modules):
    return sum(module_costs(module).flops * runs for module, runs in modules)


def lowered(function, *calls):
    tf.function(lambda x: x + 1, jit_compile=True)(1.0)  # as in every profile before lowering
    step = tf.function(function, autograph=False)
    with calls_recorded() as recorded:
        for args in calls:
            step(*args)
            recorded.end_step()
    return lower(recorded, {}, 30)


def of_lengths(x, lengths):
    return outer_sum(x, tf.repeat(tf.range(tf.size(lengths)), lengths)) @ W


def trained(x, ids):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.math.segment_mean(x @ W, ids) @ W)
    return tape.gradient(loss, W)


def test_what_follows_a_sum_works_on_as_many_rows_as_there_are_segments():
    for name, function, args, flops in [
        ("sum", lambda x, ids: outer_sum(x, ids) @ W, (X, IDS), SUM + 4 * PRODUCT),
        ("max", lambda x, ids: tf.math.segment_max(x, ids) @ W, (X, IDS), SUM + 4 * PRODUCT),
        ("mean", lambda x, ids: tf.math.segment_mean(x, ids), (X, IDS), SUM + 4 * 4),
        ("captured", lambda x: outer_sum(x, IDS) @ W, (X,), SUM + 4 * PRODUCT),
        (
            "computed",
            lambda x, ids: outer_sum(x, tf.sort(ids // 2)) @ W,
            (X, IDS),
            SUM + 2 * PRODUCT,
        ),
        ("of lengths", of_lengths, (X, tf.constant([2, 3, 1])), SUM + 3 * PRODUCT),
        (
            "twice, in a function",
            lambda x, ids: called(called(x, ids), tf.constant([0, 0, 1, 1])) @ W,
            (X, IDS),
            SUM + 4 * 4 + 2 * PRODUCT,
        ),
        (
            "gradient",  # that of the mean adds 1.0 for each row, and divides; the loss is unused
            trained,
            (X, IDS),
            2 * 6 * PRODUCT + SUM + 4 * 4 + 2 * 4 * PRODUCT + 6 + 4 * 4 + 4 * 4,
        ),
    ]:
        assert flops_of(lowered(function, args).modules) == flops, name


def test_steps_of_equal_shapes_and_other_segments_are_other_steps():
    found = lowered(lambda x, ids: outer_sum(x, ids) @ W, *[(X, IDS), (X, OTHERS), (X, IDS)])
    assert [(flops_of(modules), n) for modules, n in found.kinds] == [
        (SUM + 4 * PRODUCT, 2),
        (SUM + 3 * PRODUCT, 1),
    ]


@pytest.mark.parametrize(
    "ids",
    [
        lambda x: tf.sort(tf.argmax(x, 1)),  # XLA knows no floats beforehand
        lambda x: tf.sort(tf.random.uniform((6,), maxval=3, dtype=tf.int32)),
        lambda x: tf.cast(tf.gather(W[0], [0, 1, 2, 3, 3, 3]), tf.int32),
    ],
)
def test_segments_that_may_be_others_when_ops_run_again_stay_unknown(ids):
    assert (
        "the number of segments depends on data"
        in lowered(lambda x: outer_sum(x, ids(x)) @ W, (X,)).why
    )
