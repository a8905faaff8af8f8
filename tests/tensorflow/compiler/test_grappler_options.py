"""Grappler's options: their effect on real graphs, and that they are restored."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import tensorflow as tf
from helpers.function_graphs import plus_products
from tensorflow.python.eager import context

from pytest_tfperf.compiler.grappler import NUMBERS, TOGGLES, grappler_options
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.plugin.fixture import TfProfile


def options():
    return dict(
        context.context()._optimizer_experimental_options
    ), tf.config.optimizer.get_experimental_options()


def optimized(function, *args):
    """Count each op type in the graphs of a function after Grappler."""
    context.context().clear_kernel_cache()
    context.enable_run_metadata()
    try:
        function(*args)
        graphs = context.export_run_metadata().function_graphs
    finally:
        context.disable_run_metadata()
    types = [
        node.op.removeprefix("_Mkl")
        for graph in graphs
        for part in graph.partition_graphs
        for node in part.node
    ]
    return {kind: types.count(kind) for kind in set(types)}


products = tf.function(plus_products)


@tf.function
def checked(x):
    return tf.debugging.check_numerics(x, "not a number") * 2


def test_option_affects_traced_functions_until_the_context_ends():
    x = tf.ones((8, 8))
    products(x)
    assert "MatMul" not in optimized(products, x)
    with grappler_options(constant_folding=False):
        assert optimized(products, x)["MatMul"] == 5
    assert "MatMul" not in optimized(products, x)
    assert products.experimental_get_tracing_count() == 1


def test_inner_context_applies_until_its_end_or_an_error():
    x = tf.ones((8, 8))
    with grappler_options(constant_folding=False):
        with pytest.raises(ZeroDivisionError), grappler_options(constant_folding=True):
            assert "MatMul" not in optimized(products, x)
            raise ZeroDivisionError
        assert optimized(products, x)["MatMul"] == 5
    assert "MatMul" not in optimized(products, x)


def test_options_set_within_the_context_end_with_it():
    before = options()
    with grappler_options(constant_folding=False):
        tf.config.optimizer.set_experimental_options({"constant_folding": True, "remapping": False})
        assert "MatMul" not in optimized(products, tf.ones((8, 8)))
    assert options() == before


def test_another_thread_keeps_the_options_with_which_it_first_called_a_function():
    nan = tf.constant(float("nan"))
    with ThreadPoolExecutor(1) as thread:
        thread.submit(products, tf.ones((8, 8))).result()
        with grappler_options(debug_stripper=True):
            assert tf.math.is_nan(checked(nan))
            with pytest.raises(tf.errors.InvalidArgumentError):
                thread.submit(checked, nan).result()


def test_the_debug_stripper_lets_a_nan_pass():
    nan = tf.constant(float("nan"))
    with pytest.raises(tf.errors.InvalidArgumentError):
        checked(nan)
    with grappler_options(debug_stripper=True):
        assert tf.math.is_nan(checked(nan))
    with pytest.raises(tf.errors.InvalidArgumentError):
        checked(nan)


def test_options_are_restored_also_nested_and_after_an_error():
    before = options()
    with grappler_options(constant_folding=False):
        outer = options()
        with pytest.raises(ZeroDivisionError), grappler_options(remapping=False, min_graph_nodes=7):
            assert options()[1]["min_graph_nodes"] == 7
            raise ZeroDivisionError
        assert options() == outer
    assert options() == before


def test_options_of_the_user_stay():
    tf.config.optimizer.set_experimental_options({"remapping": False})
    try:
        with grappler_options(constant_folding=False):
            assert tf.config.optimizer.get_experimental_options()["remapping"] is False
        assert tf.config.optimizer.get_experimental_options()["remapping"] is False
        assert "constant_folding" not in tf.config.optimizer.get_experimental_options()
    finally:
        del context.context()._optimizer_experimental_options["remapping"]
        context.context()._thread_local_data.function_call_options = None


INVALID = [
    ({"constant_foldin": False}, "no option 'constant_foldin'; did you mean 'constant_folding'"),
    ({"auto_parallel": True}, "no option 'auto_parallel'"),
    ({"memory_optimization": True}, "no option 'memory_optimization'"),
    ({"constant_folding": "off"}, "constant_folding is True or False, not 'off'"),
    ({"constant_folding": 0}, "constant_folding is True or False, not 0"),
    ({"min_graph_nodes": True}, "min_graph_nodes is a whole number, not True"),
    ({"min_graph_nodes": 4.0}, "min_graph_nodes is a whole number, not 4.0"),
    ({"min_graph_nodes": 2**31}, "min_graph_nodes is a 32-bit number, and 2147483648 is not"),
]


def test_invalid_options_are_immediate_errors():
    before = options()
    for given, message in INVALID:
        with pytest.raises(CaptureError, match=message), grappler_options(**given):
            pytest.fail("never entered")
        assert options() == before, given


def test_tensorflow_knows_every_option():
    """TensorFlow shows an option that was set, if it knows the option."""
    for name in TOGGLES + NUMBERS:
        value = 3 if name in NUMBERS else True
        with grappler_options(**{name: value}):
            assert tf.config.optimizer.get_experimental_options()[name] == value, name


def test_missing_private_attribute_is_an_error(monkeypatch):
    monkeypatch.delattr(context.context(), "_optimizer_experimental_options")
    with (
        pytest.raises(CaptureError, match="does not show its Grappler options"),
        grappler_options(remapping=False),
    ):
        pytest.fail("never entered")


def test_fixture_offers_the_options():
    assert TfProfile.grappler is grappler_options


def test_graphs_read_after_the_context_are_those_of_its_options(profile):
    """Graphs are made when they are read, which may be outside of the context."""
    step, arguments = tf.function(plus_products), [tf.ones((8, 8))] * 200
    with profile.grappler(constant_folding=False):
        unfolded = profile(step, arguments, name="unfolded")
    before = options()
    folded = profile(tf.function(plus_products), arguments, name="folded")
    assert unfolded.graph_ops > folded.graph_ops
    assert options() == before
