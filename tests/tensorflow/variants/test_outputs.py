"""Outputs of two variants that are the same, nearly, or not; leaf by leaf."""

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.variants.outputs import Tolerance, check_outputs, leaves_of


def check(one, other, rtol=None, atol=None):
    return check_outputs({"plain": leaves_of(one), "xla": leaves_of(other)}, Tolerance(rtol, atol))


class Pair(NamedTuple):
    loss: object
    count: object


BF16 = tf.constant([1.0, 2.0], tf.bfloat16)
NAN, INF = float("nan"), float("inf")
SPARSE = tf.SparseTensor([[0, 1]], [1.0], [2, 2])

SAME = [
    (tf.constant([1.0, 2.0]), np.array([1.0, 2.00009], "float32")),
    (tf.constant(0.0), tf.constant(0.9e-5)),
    (tf.constant([1.0, 2.0]), tf.constant([1.009, 2.0], tf.bfloat16)),
    (tf.constant([1.0, 2.0], tf.float64), tf.constant([1.0, 2.0001])),
    (1.0, 1.00009),
    (tf.constant(1.0), 1),
    ([1.0, (tf.constant(2), None)], (1.0, [2, None])),
    ({"a": 1, "b": [2.0]}, {"b": [2.0], "a": 1}),
    (Pair(1.0, 2), Pair(1.0, 2)),
    (tf.constant([NAN, INF, -INF]), tf.constant([NAN, INF, -INF])),
    (tf.constant(["a", "b"]), np.array([b"a", b"b"], object)),
    ("text", "text"),
    (1 + 2j, tf.constant(1 + 2j, tf.complex64)),
    (np.array([2**62, 1]), np.array([2**62, 1])),
    (tf.Variable([1.0]), tf.constant([1.0])),
    (SPARSE, tf.SparseTensor([[0, 1]], [1.00001], [2, 2])),
    (np.zeros((0, 3)), tf.zeros((0, 3))),
    (tf.constant(1.0, tf.bfloat16), tf.constant(1.004, tf.float16)),
    (True, tf.constant(True)),
]


def test_what_is_the_same_within_the_narrower_dtype_s_tolerance():
    for one, other in SAME:
        assert check(one, other) == (), (one, other)
        assert check(other, one) == (), (other, one)


DIFFERENT = [
    (
        tf.constant([[1.0, 2.0]]),
        tf.constant([[1.0, 2.02]]),
        r"output, float32\[1,2\], differs by up to 0\.02 at \[0, 1\] \(2\.0 against 2\.0\d*\), in 1 of 2 values, with rtol=0\.0001 and atol=1e-05",
    ),
    (
        {"loss": [1.0, 2.0]},
        {"loss": [1.0, 2.1]},
        r"output\['loss'\]\[1\], float64\[\], differs by up to 0\.1 \(2\.0 against 2\.1\), with",
    ),
    (
        Pair(1.0, 2),
        Pair(1.0, 3),
        r"output\.count, int64\[\], differs by up to 1 \(2 against 3\), with rtol=0 and atol=0",
    ),
    (
        np.array([2**62]),
        np.array([2**62 + 1]),
        r"differs by up to 0 at \[0\] \(4611686018427387904 against 4611686018427387905\)",
    ),
    (
        tf.constant([1.0, 2.0], tf.float64),
        tf.constant([1.0, 2.0001], tf.float64),
        "rtol=1e-07 and atol=1e-09",
    ),
    (BF16, tf.constant([1.0, 2.1]), "rtol=0.01 and atol=0.01"),
    (
        tf.constant([1.0, NAN]),
        tf.constant([1.0, 2.0]),
        r"differs by up to inf at \[1\] \(nan against 2\.0\)",
    ),
    (tf.constant([INF]), tf.constant([1.0]), r"\(inf against 1\.0\)"),
    (tf.constant([INF]), tf.constant([-INF]), r"\(inf against -inf\)"),
    (tf.zeros((2, 3)), tf.zeros((3, 2)), r"output is float32\[2,3\] against float32\[3,2\]"),
    (None, tf.constant(1.0), r"output is None against float32\[\]"),
    (
        (1, 2),
        (1, 2, 3),
        r"output\[2\] of 'xla' is not there in 'plain', which gives output\[0\], output\[1\]",
    ),
    (
        {"a": 1},
        {"b": 1},
        r"output\['a'\] of 'plain' is not there in 'xla', which gives output\['b'\]",
    ),
    ([], [1], r"output\[0\] of 'xla' is not there in 'plain', which gives nothing"),
    (
        tf.constant(["a", "b"]),
        tf.constant(["a", "c"]),
        r"output, text\[2\], differs at \[1\] \(b'b' against b'c'\), in 1 of 2 values\n",
    ),
    ("a", 1, r"output is text\[\] against int64\[\]"),
    (object(), 1, r"output is a value of type object against int64\[\]"),
    (True, False, r"output, bool\[\], differs by up to 1 \(True against False\)"),
    (
        SPARSE,
        tf.SparseTensor([[0, 1]], [2.0], [2, 2]),
        r"output \(SparseTensor, part 1\), float32\[1\], differs by up to 1",
    ),
]


def test_what_differs_is_said_with_its_place_and_its_tolerance():
    for one, other, message in DIFFERENT:
        with pytest.raises(AssertionError, match=message) as error:
            check(one, other)
        said = str(error.value)
        assert said.startswith(
            "variants 'plain' and 'xla' return different outputs in their first step:\n  output"
        )
        for remedy in ("try: a looser rtol=", "check_outputs=False", "dropout"):
            assert remedy in said, message


def test_a_tolerance_of_one_s_own_holds_at_its_edge():
    assert check(tf.constant([100.0]), tf.constant([101.0]), rtol=0.01, atol=0) == ()
    assert check(tf.constant([100]), tf.constant([101]), rtol=0.01) == ()
    assert check(tf.constant([0.0]), tf.constant([0.5]), atol=0.5) == ()
    with pytest.raises(AssertionError, match=r"rtol=0\.0099 and atol=0"):
        check(tf.constant([100.0]), tf.constant([101.0]), rtol=0.0099, atol=0)
    with pytest.raises(AssertionError, match="rtol=0 and atol=1e-05"):
        check(tf.constant([1.0]), tf.constant([1.00005]), rtol=0)


def test_what_is_no_tolerance_is_refused():
    for name, value, error in (
        ("rtol", "1%", TypeError),
        ("atol", True, TypeError),
        ("rtol", -1, ValueError),
        ("atol", NAN, ValueError),
        ("rtol", INF, ValueError),
    ):
        with pytest.raises(error, match=name):
            Tolerance(**{name: value})


def test_of_many_differences_three_are_named():
    with pytest.raises(AssertionError, match=r"output\[2\].*\n  and 2 more\n  try") as error:
        check(list(range(5)), list(range(1, 6)))
    assert "output[3]" not in str(error.value)


def test_each_variant_is_held_against_the_first():
    outputs = {
        name: leaves_of(value) for name, value in {"plain": 1.0, "same": 1.0, "other": 1.5}.items()
    }
    with pytest.raises(AssertionError, match="variants 'plain' and 'other' return"):
        check_outputs(outputs, Tolerance())


def test_what_cannot_be_compared_is_said():
    assert check({"a": 1, "b": object()}, {"a": 1, "b": object()}) == (
        "outputs of type object were not compared",
    )
    nothing = "the variants return no values, so it is not known whether they compute the same"
    assert check(None, None) == (nothing,)
    assert check({}, []) == (nothing,)


@pytest.mark.imports("jax")
def test_arrays_of_jax_stay_what_they_were_when_a_later_step_donates_them():
    jax = pytest.importorskip("jax")
    donates = jax.jit(lambda x: x + 1, donate_argnums=0)
    array, tree = jax.numpy.ones(3), jax.tree_util.Partial(print, jax.numpy.ones(3))
    leaves = leaves_of([array, tree])
    donates(array)
    donates(tree.args[0])
    assert [np.asarray(leaf).tolist() for leaf in leaves.values()] == [[1, 1, 1]] * 2


def test_leaves_stay_what_they_were():
    variable, array = tf.Variable([1.0]), np.array([1.0])
    leaves = leaves_of([variable, array])
    variable.assign([2.0])
    array[0] = 2
    assert [
        leaf.tolist() if isinstance(leaf, np.ndarray) else leaf.numpy().tolist()
        for leaf in leaves.values()
    ] == [[1.0], [1.0]]
