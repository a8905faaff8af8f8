"""The batch size of a dataset, read from its stages, against its real elements."""

import numpy as np
import tensorflow as tf

from pytest_tfperf.compiler.datasets import batch_size

FACTOR = tf.Variable(2.0)


def twice(x, y):
    return tf.repeat(x, 2, 0), tf.concat([y, y], 0)


def by_numpy(x, y):
    return tf.numpy_function(lambda a: a, [x], tf.float32), y


def examples():
    return tf.data.Dataset.from_tensor_slices((tf.ones((96, 4)), tf.ones(96)))


def test_batch_size_is_the_first_size_of_the_elements():
    batches = examples().batch(16)
    cases = {
        "batch": batches,
        "parallel": examples().batch(16, num_parallel_calls=2),
        "padded": examples().padded_batch(16),
        "kept": batches.prefetch(1).repeat().shuffle(2).take(50).skip(1).cache(),
        "map": batches.map(lambda x, y: (x * 2, y)),
        "one part": batches.map(lambda x, y: x),
        "repeat": batches.map(twice),
        "two maps": batches.map(twice, num_parallel_calls=2).prefetch(1).map(twice),
        "first": batches.map(lambda x, y: (x[:8], y[:8])),
        "dict": batches.map(lambda x, y: {"x": x[::2], "y": y[::2]}),
        "scalar": batches.map(lambda x, y: (x, tf.reduce_sum(y))),
        "map first": examples().map(lambda x, y: (x, 1.0)).batch(3),
        "batch twice": examples().batch(4).batch(3),
    }
    for name, data in cases.items():
        assert batch_size(data) == np.shape(tf.nest.flatten(next(iter(data)))[0])[0], name


def test_batch_size_is_unknown():
    batches = examples().batch(16)
    cases = {
        "none": examples(),
        "filter": batches.filter(lambda x, y: True),
        "unbatch": batches.unbatch(),
        "map, unbatch": batches.map(twice).unbatch(),
        "numpy": batches.map(by_numpy),
        # the shape of a variable is not in the function
        "variable": batches.map(lambda x, y: (x * FACTOR, y)),
        "mask": batches.map(lambda x, y: (tf.boolean_mask(x, y > 0), y)),
        "two sizes": batches.map(lambda x, y: (x[:8], y)),
        "sparse": batches.map(lambda x, y: tf.sparse.from_dense(x)),
        "interleave": batches.interleave(lambda x, y: tf.data.Dataset.from_tensors(x)),
        "zip": tf.data.Dataset.zip((examples().batch(16), examples().batch(4))),
        "no dataset": object(),
        "nothing": None,
    }
    for name, data in cases.items():
        assert batch_size(data) is None, name
