"""The batch size of a dataset, read from its stages, against its real elements."""

import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.compiler.datasets import batch_size

EXAMPLES = tf.data.Dataset.from_tensor_slices((tf.ones((96, 4)), tf.ones(96)))
BATCHES = EXAMPLES.batch(16)
FACTOR = tf.Variable(2.0)


def twice(x, y):
    return tf.repeat(x, 2, 0), tf.concat([y, y], 0)


def by_numpy(x, y):
    return tf.numpy_function(lambda a: a, [x], tf.float32), y


@pytest.mark.parametrize(
    "data",
    [
        BATCHES,
        EXAMPLES.batch(16, num_parallel_calls=2),
        EXAMPLES.padded_batch(16),
        BATCHES.prefetch(1).repeat().shuffle(2).take(50).skip(1).cache(),
        BATCHES.map(lambda x, y: (x * 2, y)),
        BATCHES.map(lambda x, y: x),
        BATCHES.map(twice),
        BATCHES.map(twice, num_parallel_calls=2).prefetch(1).map(twice),
        BATCHES.map(lambda x, y: (x[:8], y[:8])),
        BATCHES.map(lambda x, y: {"x": x[::2], "y": y[::2]}),
        BATCHES.map(lambda x, y: (x, tf.reduce_sum(y))),
        EXAMPLES.map(lambda x, y: (x, 1.0)).batch(3),
        EXAMPLES.batch(4).batch(3),
    ],
    ids=[
        "batch",
        "parallel",
        "padded",
        "kept",
        "map",
        "one part",
        "repeat",
        "two maps",
        "first",
        "dict",
        "scalar",
        "map first",
        "batch twice",
    ],
)
def test_batch_size_is_the_first_size_of_the_elements(data):
    assert batch_size(data) == np.shape(tf.nest.flatten(next(iter(data)))[0])[0]


@pytest.mark.parametrize(
    "data",
    [
        EXAMPLES,
        BATCHES.filter(lambda x, y: True),
        BATCHES.unbatch(),
        BATCHES.map(twice).unbatch(),
        BATCHES.map(by_numpy),
        BATCHES.map(lambda x, y: (x * FACTOR, y)),  # the shape of a variable is not in the function
        BATCHES.map(lambda x, y: (tf.boolean_mask(x, y > 0), y)),
        BATCHES.map(lambda x, y: (x[:8], y)),
        BATCHES.map(lambda x, y: tf.sparse.from_dense(x)),
        BATCHES.interleave(lambda x, y: tf.data.Dataset.from_tensors(x)),
        tf.data.Dataset.zip((EXAMPLES.batch(16), EXAMPLES.batch(4))),
        object(),
        None,
    ],
    ids=[
        "none",
        "filter",
        "unbatch",
        "map, unbatch",
        "numpy",
        "variable",
        "mask",
        "two sizes",
        "sparse",
        "interleave",
        "zip",
        "no dataset",
        "nothing",
    ],
)
def test_batch_size_is_unknown(data):
    assert batch_size(data) is None
