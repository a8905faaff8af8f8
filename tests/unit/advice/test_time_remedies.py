"""The remedy of what takes the time of a step: that of its cause."""

import pytest

from pytest_tfperf.advice.step_remedies import op_remedy, python_remedy, runs_eagerly
from pytest_tfperf.recording import StackTime


@pytest.mark.parametrize(
    ("kind", "scope", "kinds", "told"),
    [
        ("EagerPyFunc", "", [], "with TensorFlow ops"),
        ("While", "map", [], "vectorized_map"),
        ("MakeIterator", "", [], "model(x)"),
        ("Mul", "adam", ["Mul", "UnsortedSegmentSum"], "sparse"),
        ("Mul", "adam", ["Mul", "Sqrt"], "jit_compile"),  # dense gradients
        ("Mul", "dense", ["Mul", "UnsortedSegmentSum"], "jit_compile"),  # no optimizer
        ("Mul", "lambda", ["Mul", "UnsortedSegmentSum"], "jit_compile"),  # nor is a Lambda layer
        ("Mul", "model/Adam_1/update", ["Mul", "UnsortedSegmentSum"], "sparse"),
        ("MatrixInverse", "", [], "decomposition"),
        ("SaveV2", "", [], "less often"),
        ("MatMul", "dense", [], "arithmetic"),
        ("NonMaxSuppressionV3", "", [], "fewer candidates"),
        ("sort", "", [], "top_k"),
        ("StringSplit", "", [], "input pipeline"),
        ("pure_callback", "", [], "jax.numpy"),
        ("convolution", "", [], "arithmetic"),
    ],
)
def test_ops_have_the_remedy_of_their_type(kind, scope, kinds, told):
    assert told in op_remedy(kind, scope, kinds)


@pytest.mark.parametrize(
    ("called", "callback", "told"),
    [
        ("jax/_src/numpy/array_constructors.py:array", "", "np.asarray"),
        ("keras/src/backend/tensorflow/trainer.py:predict", "", "model(x"),
        ("keras/src/backend/tensorflow/trainer.py:predict", "Preview.on_batch_end", "callback"),
        ("jax/_src/numpy/ufuncs.py:add", "", "jax.jit"),
        ("tensorflow/python/ops/math_ops.py:add", "", "tf.function"),
        ("", "", "less often"),
        ("scipy/stats/_stats_py.py:kendalltau", "", "less often"),
    ],
)
def test_python_has_the_remedy_of_what_it_calls(called, callback, told):
    place = StackTime("train.py:3", called, called or "train.py:step", callback, "", 0.1, 20)
    assert told in python_remedy([place])


def test_ops_that_xla_compiled_are_not_told_to_be_compiled():
    assert op_remedy("wrapped_multiply", "", []) == ""


@pytest.mark.parametrize("kind", ["MatMulOfSomebody", "MatrixBandPart", "Softmax"])
def test_a_type_of_which_nothing_is_known_has_no_remedy(kind):
    assert op_remedy(kind, "", []) == ""


def test_arrays_of_python_s_objects_are_no_ops_that_run_eagerly():
    for called, eagerly in (
        ("jax/_src/numpy/array_constructors.py:array", False),
        ("jax/_src/numpy/array_methods.py:_operator_rmul", True),
        ("jax/_src/array.py:ArrayImpl.__getitem__", True),
        ("jax/_src/array.py:ArrayImpl.__float__", False),
        ("", False),
    ):
        place = StackTime("train.py:3", called, "train.py:step", "", "", 0.1, 20)
        assert runs_eagerly(place) is eagerly, called


def test_wide_types_come_before_all_else():
    assert "float32" in op_remedy("convolution", "", [], "f64")
    assert "arithmetic" in op_remedy("convolution", "", [], "f32")
