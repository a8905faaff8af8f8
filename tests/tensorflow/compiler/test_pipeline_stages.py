"""Stages of real pipelines and other data, and the lines of the Python in them."""

import inspect
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.capture.input_data import stages_of
from pytest_tfperf.capture.keras_data import KerasCall, sample_again
from pytest_tfperf.recording import ENDLESS, UNSEEN
from pytest_tfperf.values import Unknown

HERE = Path(__file__).name


def ends(rows):
    """Rows from Python, whose line is where `from_generator` is called."""
    yield from rows


def in_eager_python(x):
    return tf.py_function(lambda y: y + 1, [x], tf.int64)


def in_numpy_python(x):
    return tf.numpy_function(lambda y: y + 1, [x], tf.int64)


def in_a_branch(x):
    return tf.cond(x > 1, lambda: in_numpy_python(x), lambda: x)


@tf.function
def in_a_callee(x):
    return in_eager_python(x)


def numbers():
    return tf.data.Dataset.range(4)


def generated():
    return tf.data.Dataset.from_generator(
        lambda: ends([1]), output_signature=tf.TensorSpec((), tf.int64)
    )


def nested(function):
    return numbers().interleave(lambda n: tf.data.Dataset.range(3).map(function))


def line_of(function):
    """Last line of a function of two lines."""
    lines, first = inspect.getsourcelines(function)
    return f"{HERE}:{first + len(lines) - 1}"


def shown(data):
    """Stages as `type` or `type: python`."""
    found = stages_of(data)
    assert not isinstance(found, Unknown), found.why
    return [f"{one.stage}: {one.python}" if one.python else one.stage for one in found]


PLAIN = [
    (lambda: numbers().map(lambda x: x + 1).batch(2).prefetch(2), "Range Map Batch Prefetch"),
    (
        lambda: tf.data.Dataset.zip((numbers(), numbers().repeat())).cache(),
        "Range Range Repeat Zip Cache",
    ),
    (lambda: nested(lambda x: x), "Range Range Map Interleave"),
    (lambda: numbers().with_options(tf.data.Options()).shuffle(4), "Range Shuffle"),
    (
        lambda: tf.data.Dataset.from_tensor_slices([1]).map(lambda x: x, num_parallel_calls=2),
        "TensorSlice ParallelMap",
    ),
    (lambda: [np.ones(3)], "list"),
    (lambda: np.ones((4, 3)), "ndarray"),
]
PYTHON = [
    (lambda: numbers().map(in_eager_python).prefetch(2), ["Range", "Map: py_function", "Prefetch"]),
    (lambda: numbers().map(in_numpy_python), ["Range", "Map: numpy_function"]),
    (lambda: numbers().map(in_a_branch), ["Range", "Map: numpy_function"]),
    (lambda: numbers().map(in_a_callee), ["Range", "Map: py_function"]),
    (lambda: numbers().filter(lambda x: in_eager_python(x) > 0), ["Range", "Filter: py_function"]),
    (generated, ["Tensor", "Generator: from_generator", "FlatMap"]),
    (
        lambda: nested(in_eager_python),
        ["Range", "Range", "Map: py_function", "Interleave"],
    ),
    (
        lambda: numbers().map(in_eager_python).map(in_numpy_python),
        ["Range", "Map: py_function", "Map: numpy_function"],
    ),
]


def test_stages_without_python_are_listed_in_order():
    for make, expected in PLAIN:
        assert shown(make()) == expected.split()


def test_stages_that_run_python_name_it():
    for make, expected in PYTHON:
        assert shown(make()) == expected


def test_python_has_the_line_of_the_user():
    for data, function in (
        (numbers().map(in_eager_python), in_eager_python),
        (numbers().map(in_a_branch), in_numpy_python),
        (nested(in_eager_python), in_eager_python),
        (numbers().map(in_a_callee), in_eager_python),
    ):
        assert [one.line for one in stages_of(data) if one.python] == [line_of(function)]


def test_a_generator_has_the_line_that_made_its_dataset():
    first = inspect.getsourcelines(generated)[1]
    [line] = [one.line for one in stages_of(generated()) if one.python]
    assert line in {f"{HERE}:{first + row}" for row in range(4)}


def test_iterators_and_distributed_datasets_show_their_dataset():
    data = numbers().map(in_eager_python).batch(2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    distributed = strategy.experimental_distribute_dataset(data)
    for holder in (iter(data), data.as_numpy_iterator(), distributed):
        assert "Map: py_function" in shown(holder), type(holder)


class Rows(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return np.ones((2, 3)), np.ones((2, 1))


@pytest.mark.imports("keras")
def test_python_data_are_one_stage_with_its_line():
    for data, expected, function in (
        (Rows(), "Rows: PyDataset", Rows.__getitem__),
        (ends([1]), "generator: generator", ends),
    ):
        assert shown(data) == [expected]
        line = inspect.getsourcelines(function)[1]
        assert stages_of(data)[0].line == f"{HERE}:{line}", expected


def test_hidden_stages_are_unknown():
    variant = tf.data.experimental.to_variant(numbers())
    for data, why in (
        (map(str, numbers()), "the data are map, and the stages behind it are not"),
        (
            tf.data.experimental.from_variant(variant, tf.TensorSpec((), tf.int64)),
            "has a Variant stage: it was made by an op",
        ),
    ):
        found = stages_of(data)
        assert isinstance(found, Unknown), why
        assert why in found.why


def test_a_damaged_dataset_is_unknown_and_no_data_are_unseen():
    broken = numbers()
    broken._inputs = lambda: [None]
    assert "could not be read" in stages_of(broken).why
    assert stages_of(None) is UNSEEN


@pytest.mark.imports("keras")
def test_a_keras_loop_shows_its_data():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    for data, expected in (
        ((np.ones((4, 3)), np.ones((4, 1))), ["ndarray"]),
        ((Rows(),), ["Rows: PyDataset"]),
        ((generated().batch(1),), ["Tensor", "Generator: from_generator", "FlatMap", "Batch"]),
    ):
        call = KerasCall.of(model, "fit", data, {})
        assert shown(sample_again(call).data) == expected


@pytest.mark.imports("keras")
def test_keras_makes_the_pipeline_of_arrays_and_py_datasets():
    def by_keras(data, **options):
        return [stage.by_keras for stage in stages_of(data, **options)]

    arrays = np.ones((4, 3))
    assert by_keras(arrays, by_keras=True) == [True]
    assert by_keras({"a": arrays}, by_keras=True) == [True]
    assert by_keras(Rows(), by_keras=True) == [True]
    assert by_keras(generated().batch(1), by_keras=True) == [False] * 4
    # other loops make none
    assert by_keras(arrays) == by_keras([arrays]) == [False]


def drawn(x):
    return x + tf.random.uniform((), 0, 3, tf.int64)


def drawn_by_a_generator(x):
    return x + tf.random.get_global_generator().uniform((), 0, 3, tf.int64)


def drawn_from_its_element(x):
    return tf.random.stateless_uniform((), tf.stack([x, x]), 0, 3, tf.int64)


@pytest.mark.imports("keras")
def test_stages_that_make_other_elements_in_each_epoch():
    images = tf.data.Dataset.from_tensors(np.ones((4, 4, 3), "float32"))
    flip = keras.layers.RandomFlip()
    for name, data, is_random in (
        ("shuffle", numbers().shuffle(2), True),
        ("random ops", numbers().map(drawn), True),
        ("a tf.random.Generator", numbers().map(drawn_by_a_generator), True),
        ("a layer of Keras", images.map(lambda x: flip(x, training=True)), True),
        ("seeds of the elements", numbers().map(drawn_from_its_element), False),
        ("sums", numbers().map(lambda x: x + 1), False),
    ):
        assert stages_of(data)[-1].random is is_random, name


def test_elements_of_an_epoch_and_their_bytes():
    data = numbers().batch(2).cache().repeat()
    assert [(one.elements, one.element_bytes) for one in stages_of(data)] == [
        (4, 8),
        (2, None),  # the last batch may be smaller
        (2, None),
        (ENDLESS, None),
    ]
    assert stages_of(generated())[-1].elements is None
