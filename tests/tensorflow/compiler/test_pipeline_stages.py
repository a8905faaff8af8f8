"""Stages of real pipelines and other data, and the lines of the Python in them."""

import inspect
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.capture.keras_loops.keras_data import KerasCall, sample_again
from pytest_tfperf.capture.pipeline_stages import stages_of
from pytest_tfperf.recording import UNSEEN
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


@pytest.mark.parametrize(("make", "expected"), PLAIN)
def test_stages_without_python_are_listed_in_order(make, expected):
    assert shown(make()) == expected.split()


@pytest.mark.parametrize(("make", "expected"), PYTHON)
def test_stages_that_run_python_name_it(make, expected):
    assert shown(make()) == expected


@pytest.mark.parametrize(
    ("make", "function"),
    [
        (lambda: numbers().map(in_eager_python), in_eager_python),
        (lambda: numbers().map(in_a_branch), in_numpy_python),
        (lambda: nested(in_eager_python), in_eager_python),
        (lambda: numbers().map(in_a_callee), in_eager_python),
    ],
)
def test_python_has_the_line_of_the_user(make, function):
    assert [one.line for one in stages_of(make()) if one.python] == [line_of(function)]


def test_a_generator_has_the_line_that_made_its_dataset():
    first = inspect.getsourcelines(generated)[1]
    [line] = [one.line for one in stages_of(generated()) if one.python]
    assert line in {f"{HERE}:{first + row}" for row in range(4)}


@pytest.mark.parametrize(
    "hold",
    [
        iter,
        lambda data: data.as_numpy_iterator(),
        lambda data: tf.distribute.MirroredStrategy(["CPU:0"]).experimental_distribute_dataset(
            data
        ),
    ],
)
def test_iterators_and_distributed_datasets_show_their_dataset(hold):
    data = numbers().map(in_eager_python).batch(2)
    assert "Map: py_function" in shown(hold(data))


class Rows(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return np.ones((2, 3)), np.ones((2, 1))


@pytest.mark.parametrize(
    ("make", "expected", "line"),
    [
        (Rows, "Rows: PyDataset", inspect.getsourcelines(Rows.__getitem__)[1]),
        (lambda: ends([1]), "generator: generator", inspect.getsourcelines(ends)[1]),
    ],
)
def test_python_data_are_one_stage_with_its_line(make, expected, line):
    data = make()
    assert shown(data) == [expected]
    assert stages_of(data)[0].line == f"{HERE}:{line}"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: map(str, numbers()), "the data are map, and the stages behind it are not"),
        (
            lambda: tf.data.experimental.from_variant(
                tf.data.experimental.to_variant(numbers()), tf.TensorSpec((), tf.int64)
            ),
            "has a Variant stage: it was made by an op",
        ),
    ],
)
def test_hidden_stages_are_unknown(make, why):
    found = stages_of(make())
    assert isinstance(found, Unknown)
    assert why in found.why


def test_a_damaged_dataset_is_unknown_and_no_data_are_unseen():
    broken = numbers()
    broken._inputs = lambda: [None]
    assert "could not be read" in stages_of(broken).why
    assert stages_of(None) is UNSEEN


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ((np.ones((4, 3)), np.ones((4, 1))), ["ndarray"]),
        ((Rows(),), ["Rows: PyDataset"]),
        ((generated().batch(1),), ["Tensor", "Generator: from_generator", "FlatMap", "Batch"]),
    ],
)
def test_a_keras_loop_shows_its_data(data, expected):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    call = KerasCall.of(model, "fit", data, {})
    assert shown(sample_again(call).data) == expected


@pytest.mark.parametrize(
    ("data", "by_keras"),
    [
        (np.ones((4, 3)), [True]),
        ({"a": np.ones((4, 3))}, [True]),
        (Rows(), [True]),
        (generated().batch(1), [False] * 4),
    ],
)
def test_keras_makes_the_pipeline_of_arrays_and_py_datasets(data, by_keras):
    assert [stage.by_keras for stage in stages_of(data, by_keras=True)] == by_keras


@pytest.mark.parametrize("data", [np.ones((4, 3)), [np.ones((4, 3))]])
def test_arrays_of_other_loops_have_no_pipeline(data):
    assert [stage.by_keras for stage in stages_of(data)] == [False]
