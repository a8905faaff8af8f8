"""Traces of tf.functions, and the arguments that caused them."""

from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.compiler.retracing import traces_reported_to
from pytest_tfperf.function_traces import (
    DTYPE,
    FIRST,
    FUNCTION_ARGUMENT,
    KERAS_COMPILE,
    KERAS_MODEL,
    LENGTH,
    OBJECT,
    SHAPE,
    STRUCTURE,
    UNKNOWN,
    VALUE,
    FunctionTrace,
)
from pytest_tfperf.metrics.counts import retrace_cause

ONES = tf.ones


class Pair(NamedTuple):
    left: tf.Tensor
    right: int


def reports(*calls):
    """List the reports while these run one after another."""
    found = []
    with traces_reported_to(lambda name, changes: found.append((name, _said(changes)))) as watched:
        assert watched
        for call in calls:
            call()
    return found


def _said(changes):
    return ", ".join(dict.fromkeys(change.text for change in changes))


def times(function):
    return lambda *args, **kwargs: lambda: function(*args, **kwargs)


class Packed(tf.experimental.ExtensionType):
    """A type with fields of the names that a tensor's has."""

    bits: tf.Tensor
    shape: tuple[int, ...]
    dtype: tf.DType


class Mixed(tf.experimental.ExtensionType):
    """A type with a field of the name that a tuple's has."""

    bits: tf.Tensor
    components: int


def make(**options):
    @tf.function(**options)
    def scale(x, n=1, flag=True, *, extra=None):
        return tf.nest.flatten(x)[0] * 2.0

    return times(scale)


def test_the_first_trace_has_no_reason():
    f = make()
    assert reports(f(ONES((2,))), f(ONES((2,)))) == [("scale", "for the first time")]


CHANGES = [
    ((ONES((8, 3)),), (ONES((5, 3)),), "x float32[8,3] → float32[5,3]"),
    ((ONES((8, 3)),), (tf.cast(ONES((8, 3)), tf.float64),), "x float32[8,3] → float64[8,3]"),
    ((ONES((2,)), 1), (ONES((2,)), 2), "n 1 → 2"),
    ((ONES((2,)), 1), (ONES((2,)), 1.5), "n 1 → 1.5"),
    ((ONES((2,)), 1, True), (ONES((2,)), 1, False), "flag True → False"),
    ((ONES((2,)), "a"), (ONES((2,)), "b"), "n 'a' → 'b'"),
    ((ONES((2,)), 1), (ONES((2,)), ONES(())), "n 1 → float32[]"),
    (([ONES((2,)), ONES((3,))],), ([ONES((2,)), ONES((4,))],), "x[1] float32[3] → float32[4]"),
    ((Pair(ONES((2,)), 1),), (Pair(ONES((3,)), 1),), "x.left float32[2] → float32[3]"),
    (({"a": ONES((2,))},), ({"a": ONES((3,))},), "x['a'] float32[2] → float32[3]"),
    (({"a": ONES((2,))},), ({"a": ONES((2,)), "b": 1},), "x['b'] nothing → 1"),
    (([ONES(2)] * 3,), ([ONES(2)] * 7,), "x: a list of 3 → 7 tensors"),
    (((1, 2.0),), ((1, 2.0, 3),), "x: a tuple of 2 → 3 items"),
    (({"y": [ONES(2)] * 2},), ({"y": [ONES(2)]},), "x['y']: a list of 2 → 1 tensor"),
    ((dict.fromkeys("abc", 1),), (dict.fromkeys("abcdefgh", 1),), "x: a dict of 3 → 8 items"),
    (([ONES(2), ONES(2)],), ((ONES(2), ONES(2)),), "x list → tuple"),
    (([ONES(2), ONES(2)],), (ONES((2, 2)),), "x list of 2 → float32[2,2]"),
    ((ONES((2,)), 1), (ONES((3,)), 2), "x float32[2] → float32[3], n 1 → 2"),
]


def test_a_retrace_names_the_argument_that_changed():
    for first, second, change in CHANGES:
        f = make()
        assert reports(f(*first), f(*second)) == [
            ("scale", "for the first time"),
            ("scale", change),
        ]


def test_changed_keyword_is_named():
    f = make()
    assert reports(f(ONES((2,)), extra=1), f(ONES((2,)), extra=2))[1] == ("scale", "extra 1 → 2")


def test_nearest_earlier_trace_is_compared():
    f = make()
    found = reports(f(ONES((2,)), 1), f(ONES((3,)), 2), f(ONES((3,)), 3))
    assert found[2] == ("scale", "n 2 → 3")


def test_reduce_retracing_shows_the_shape_that_was_relaxed():
    f = make(reduce_retracing=True)
    found = reports(f(ONES((2, 3))), f(ONES((4, 3))), f(ONES((5, 3))))
    assert found == [("scale", "for the first time"), ("scale", "x float32[2,3] → float32[?,3]")]


def test_new_function_of_the_same_code_is_named():
    x = ONES((2,))
    assert reports(make()(x), make()(x)) == [
        ("scale", "for the first time"),
        ("scale", "a new tf.function of a Python function that was traced before"),
    ]


def test_functions_of_a_pipeline_that_is_made_in_each_step_are_one_cause():
    def pipeline():
        rows = tf.data.Dataset.range(4).map(lambda n: n + 1)
        return sum(int(n) for n in rows.filter(lambda n: n > 1))

    found = []
    with traces_reported_to(lambda name, changes: found.append((name, tuple(changes)))):
        pipeline(), pipeline()
    again = [
        FunctionTrace(name, 1, changes) for name, changes in found if "first" not in _said(changes)
    ]
    cause = retrace_cause(again)
    assert {one.function for one in again} == {"Dataset_map_lambda", "Dataset_filter_lambda"}
    assert cause["where"].count("a pipeline of tf.data was made anew") == 1
    assert cause["try"].startswith("make the dataset and its iterator once")


def test_change_of_context_is_named():
    f = make()
    x = ONES((2,))

    def scoped():
        with tf.distribute.OneDeviceStrategy("CPU:0").scope():
            f(x)()

    assert reports(f(x), scoped)[1][1].startswith("the same arguments in another context")


def test_changed_arrays_and_variables_are_named():
    f = make()
    found = reports(
        f(np.ones((2,), "float32")), f(np.ones((3,), "float32")), f(tf.Variable(ONES((4,))))
    )
    assert found[1] == ("scale", "x float32[2] → float32[3]")
    assert found[2][1].startswith("x float32[3] → ")


def test_a_function_that_creates_variables_in_its_first_call_traces_twice():
    class Counter(tf.Module):
        def __init__(self):
            super().__init__()
            self.made = None

        @tf.function
        def step(self, x):
            if self.made is None:
                self.made = tf.Variable(1.0)
            return x * self.made

    module = Counter()
    found = reports(lambda: module.step(ONES((2,))))
    assert [name for name, _ in found].count("step") == 2
    assert reports(lambda: module.step(ONES((2,)))) == []


class Named:
    def __init__(self, number):
        self.number = number

    def __repr__(self):
        return f"Named({self.number})"


def changes(*calls):
    found = []
    with traces_reported_to(lambda _, changes: found.append(changes)):
        for call in calls:
            call()
    return found


def test_each_change_has_a_kind_and_what_changed():
    x, kept = ONES((8, 3)), [Named(1), Named(1), Named(2)]
    cases = [
        ((x,), (ONES((5, 3)),), (SHAPE, "axis 0 of x")),
        ((x,), (ONES((8, 4)),), (SHAPE, "axis 1 of x")),
        ((x,), (tf.cast(x, tf.float64),), (DTYPE, "x")),
        ((x, 1), (x, 2), (VALUE, "n")),
        ((x, None), (x, 2), (STRUCTURE, "n")),
        (({"a": x},), ({"a": x, "b": 1},), (STRUCTURE, "x['b']")),
        (([x],), ([x, x],), (LENGTH, "x")),
        (([x, x],), ((x, x),), (STRUCTURE, "x")),
        ((x, kept[0]), (x, kept[1]), (OBJECT, "n")),
        ((x, kept[0]), (x, kept[2]), (VALUE, "n")),
        ((x, lambda: 1), (x, lambda: 2), (FUNCTION_ARGUMENT, "n")),
    ]
    for first, second, expected in cases:
        f = make()
        [_, [change]] = changes(f(*first), f(*second))
        assert (change.kind, change.of) == expected, expected


def test_the_number_of_arguments_is_the_length_of_what_takes_them():
    f = tf.function(lambda *rows: tf.add_n(rows))
    [_, [change]] = changes(lambda: f(ONES(2), ONES(2)), lambda: f(*[ONES(2)] * 3))
    assert change == (LENGTH, "rows: a tuple of 2 → 3 tensors", "rows")


def test_arguments_with_a_number_in_their_names_are_no_part_of_another():
    f = tf.function(lambda x_0, x_1: x_0 + tf.reduce_sum(x_1))
    [_, [change]] = changes(lambda: f(ONES(2), ONES(3)), lambda: f(ONES(2), ONES(5)))
    assert change.text == "x_1 float32[3] → float32[5]"


def test_two_objects_that_read_alike_are_said_to_be_unequal():
    f, one, other = make(), Named(1), Named(1)
    [_, [change]] = changes(f(ONES(2), one), f(ONES(2), other))
    assert "equal to the eye and not to ==" in change.text


def test_a_trace_is_compared_with_those_of_the_same_context_alone():
    f, x = make(), ONES((2,))
    changes(f(x, 1), f(x, 2), f(x, 3))
    [[unknown], [change]] = changes(f(x, 4), f(x, 5))
    assert unknown.kind == UNKNOWN
    assert change.text == "n 4 → 5"


@pytest.mark.imports("keras")
def test_a_model_that_is_compiled_again_is_told_from_another_one():
    def model():
        made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        made.compile("sgd", "mse")
        return made

    def train(trained):
        return lambda: trained.train_on_batch(np.ones((4, 3)), np.ones((4, 1)))

    one = model()
    again = lambda: one.compile("sgd", "mse")  # noqa: E731
    test = lambda: one.test_on_batch(np.ones((4, 3)), np.ones((4, 1)))  # noqa: E731
    found = changes(train(one), test, again, train(one), train(model()))
    kinds = [kind for [change] in found if (kind := change.kind) != FIRST]
    assert [*dict.fromkeys(kinds)] == [KERAS_COMPILE, KERAS_MODEL]


def test_an_object_that_cannot_be_shown_disturbs_no_trace():
    class Odd:
        def __repr__(self):
            raise RuntimeError

    held = [Odd(), Odd()]
    function = tf.function(lambda x, odd: x + 1)
    (_, _), (_, change) = reports(*(lambda odd=odd: function(ONES(2), odd) for odd in held))
    assert "another Odd" in change


@pytest.mark.parametrize(
    "make_one",
    [
        lambda size: Packed(ONES(size), shape=(size,), dtype=tf.int8),
        lambda size: Mixed(ONES(size), components=size),
    ],
)
def test_a_type_of_the_user_disturbs_no_call_whatever_its_fields_are_called(make_one):
    total = tf.function(lambda one: tf.reduce_sum(one.bits))
    results = []
    found = reports(*(lambda n=n: results.append(float(total(make_one(n)))) for n in (3, 4)))
    assert (len(found), results) == (2, [3, 4])
