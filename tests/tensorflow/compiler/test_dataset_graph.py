"""padded_batch anywhere in a pipeline."""

import numpy as np
import tensorflow as tf

from pytest_tfperf.compiler.datasets import PaddedComponent, padded_batches


def rows(dtype=tf.int64):
    return tf.data.Dataset.range(1, 9).map(lambda n: tf.ones([n], dtype))


def length(row):
    return tf.shape(row)[0]


ZERO = [{"element": PaddedComponent("int64", 0, (1,))}]


def test_padded_batch_of_a_pipeline_is_found():
    cases = [
        (rows().padded_batch(4), ZERO),
        (rows().padded_batch(4, padded_shapes=[16]).prefetch(2).repeat(), ZERO),
        (
            rows().padded_batch(4, padding_values=tf.constant(-1, tf.int64)),
            [{"element": PaddedComponent("int64", -1, (1,))}],
        ),
        (rows(tf.float32).padded_batch(4), [{"element": PaddedComponent("float32", 0.0, (1,))}]),
        (rows().bucket_by_sequence_length(length, [5], [4, 4]), ZERO),
        (rows().window(4).flat_map(lambda window: window.padded_batch(4)), ZERO),
        (rows().batch(1), []),
        (rows().ragged_batch(4), []),
        (tf.data.Dataset.zip((rows().padded_batch(2), rows().padded_batch(4))), ZERO * 2),
    ]
    for number, (data, expected) in enumerate(cases):
        assert padded_batches(data) == expected, number


def test_components_have_their_own_values_and_axes():
    data = tf.data.Dataset.range(1, 9).map(
        lambda n: {"c": n, "b": tf.ones([n, 3]), "a": (tf.fill([n], "x"),)}
    )
    (found,) = padded_batches(data.padded_batch(4))
    assert found == {
        "a/0": PaddedComponent("string", b"", (1,)),
        "b": PaddedComponent("float32", 0.0, (1,)),
        "c": PaddedComponent("int64", 0, ()),
    }


def test_sizes_that_examples_have_already_are_not_padded():
    data = tf.data.Dataset.range(1, 9).map(
        lambda n: (tf.ones([n]), tf.ensure_shape(tf.ones([1]), [1]))
    )
    for shapes, axes in (
        (([None], [1]), ((1,), ())),
        (([128], [1]), ((1,), ())),
        (([128], [2]), ((1,), (1,))),
    ):
        (found,) = padded_batches(data.padded_batch(4, padded_shapes=shapes))
        assert tuple(component.axes for component in found.values()) == axes, shapes


def test_labels_beside_rows_in_buckets_are_not_padded():
    data = tf.data.Dataset.range(1, 9).map(
        lambda n: (tf.ones([n]), tf.ensure_shape(tf.ones([1]), [1]), n)
    )
    size = {
        "element_length_func": lambda row, *_: tf.size(row),
        "bucket_boundaries": [5, 10],
        "bucket_batch_sizes": [2, 2, 2],
    }
    for to_boundary in (False, True):
        found = padded_batches(
            data.bucket_by_sequence_length(**size, pad_to_bucket_boundary=to_boundary)
        )
        axes = [tuple(component.axes for component in one.values()) for one in found]
        assert axes == [((1,), (), ())], to_boundary


def test_distributed_dataset_is_read_like_its_original():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    assert padded_batches(strategy.experimental_distribute_dataset(rows().padded_batch(4))) == ZERO


def test_other_data_have_no_padded_batches():
    for data in (None, [1, 2], np.ones(3), iter([]), object()):
        assert padded_batches(data) == [], data
