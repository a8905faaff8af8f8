"""Contribution of each Grappler pass, against graphs of the runtime and counts by hand."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import tensorflow as tf
from helpers.function_graphs import grappled, plus_products
from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2
from tensorflow.python.eager import context

import pytest_tfperf
from pytest_tfperf.compiler import grappler
from pytest_tfperf.compiler.grappler import (
    ASKED,
    DEFAULT_OFF,
    DEFAULT_ON,
    NUMBERS,
    TOGGLES,
    UNASKED,
    grappler_options,
    n_ops,
    ops_without_each_pass,
    rewriter_config,
    running,
)
from pytest_tfperf.compiler.step_calls import probed
from pytest_tfperf.compiler.step_graph import inspect_graph
from pytest_tfperf.errors import CaptureError

ONES = tf.ones((8, 8))


products = tf.function(plus_products)


@tf.function
def dense(x):
    return tf.nn.relu(tf.nn.bias_add(tf.matmul(x, x), tf.ones(8)))


@tf.function
def inner(x):
    return tf.nn.relu(x @ x)


@tf.function
def branches(x):
    for _ in tf.range(5):
        x = inner(x)
    return x * 2 if tf.reduce_sum(x) > 3 else x


@tf.function
def calls(x):
    return inner(x) + inner(x * 2)


@tf.function
def gradient(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x
        for _ in tf.range(3):
            y = tf.exp(-y)
    return tape.gradient(y, x)


@tf.function
def text(x):
    return tf.strings.length(tf.strings.join([tf.strings.as_string(x), "a"]))


@tf.function(input_signature=[tf.TensorSpec((None, None))])
def unknown_sizes(x):
    return tf.reduce_prod(tf.shape(x)) + 1 + tf.size(tf.ones(8) * x)


@tf.function(jit_compile=True)
def compiled(x):
    return tf.nn.relu(x @ x)


@tf.function
def printing(x):
    tf.print(x, output_stream="file:///dev/null")
    return x * 2


def left_out(function, asked=True, runs=1):
    return ops_without_each_pass([(grappled(function, ONES)[0], runs)], asked)


def assert_matches_the_runtime(function, *options):
    """Compare the ops with all passes, and those without one, with the graphs of the runtime."""
    name = function.python_function.__name__
    called, _, left = grappled(function, ONES)
    predicted = ops_without_each_pass([(called, 1)], asked=True)
    assert predicted[""] == n_ops(left), name
    for option in options:
        with grappler_options(**{option: False}):
            assert n_ops(grappled(function, ONES)[2]) == predicted[option], (name, option)


def test_ops_with_all_passes_and_without_one_match_the_runtime():
    assert_matches_the_runtime(products, "constant_folding")
    assert_matches_the_runtime(dense, "remapping")
    assert_matches_the_runtime(calls, "dependency_optimization", "function_optimization")


@pytest.mark.full
def test_ops_of_gradients_branches_texts_and_unknown_sizes_match_the_runtime():
    assert_matches_the_runtime(gradient, "arithmetic_optimization")
    assert_matches_the_runtime(unknown_sizes, "shape_optimization")
    assert_matches_the_runtime(branches)
    assert_matches_the_runtime(text)


def test_remaining_ops_match_the_step_graph_after_grappler():
    dense(ONES)
    with probed() as probe:
        calls(dense(dense(ONES)))
    found = inspect_graph(probe)
    n_after = sum(found.graph.after.values())
    without = ops_without_each_pass(found.optimized, asked=True)
    assert without[""] == n_after == 7 + 2 * n_ops(grappled(dense, ONES)[2])
    assert without["remapping"] - without[""] == 4  # two of three in each of two calls


def test_five_products_of_constants_fold_and_three_ops_of_a_layer_become_one():
    without = left_out(products)
    assert list(without) == ["", *DEFAULT_ON]  # every pass that runs is left out once
    assert without["constant_folding"] - without[""] >= 5
    without = left_out(dense)
    assert without["remapping"] - without[""] == 2  # MatMul, BiasAdd, Relu: _FusedMatMul
    assert without["loop_optimization"] == without["layout_optimizer"] == without[""]


def test_a_function_that_is_called_twice_counts_twice():
    once = left_out(dense)
    assert left_out(dense, runs=2) == {option: 2 * n_ops for option, n_ops in once.items()}


def test_options_of_the_user_are_respected():
    with grappler_options(constant_folding=False, debug_stripper=True):
        without = left_out(printing)
    assert "constant_folding" not in without
    assert (
        without["debug_stripper"] - without[""] == 3
    )  # StringFormat, PrintV2, and the Identity that waits for it
    assert "debug_stripper" not in left_out(printing)


def test_without_pruning_a_stop_gradient_stays():
    @tf.function
    def stopped(x):
        return tf.stop_gradient(x * 2) + 1

    without = left_out(stopped)
    assert without["disable_model_pruning"] - without[""] == 1


def test_no_pass_contributes_when_grappler_is_off():
    with grappler_options(disable_meta_optimizer=True):
        assert list(left_out(products)) == [""]


def test_functions_compiled_by_xla_do_not_count():
    assert left_out_of_compiled() == {}


def left_out_of_compiled():
    from pytest_tfperf.compiler.step_calls import calls_recorded

    with calls_recorded() as recorded:
        compiled(ONES)
    return ops_without_each_pass([(function, 1) for function in recorded.functions.values()])


def test_large_or_slow_ablation_runs_only_if_asked():
    for limit in ({"nodes": 3}, {"size": 100}, {"seconds": -1.0}):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(grappler, "UNASKED", replace(UNASKED, **limit))
            assert left_out(products, asked=False) == {}, limit
            assert left_out(products, asked=True)[""] == 2, limit
            patch.setattr(grappler, "ASKED", replace(ASKED, **limit))
            assert left_out(products, asked=True) == {}, limit


def test_small_step_has_an_ablation_by_default(monkeypatch):
    monkeypatch.setattr(
        grappler, "UNASKED", replace(UNASKED, seconds=60.0)
    )  # on a machine that does much else
    assert left_out(products, asked=False)[""] == 2


def test_large_arguments_prevent_the_ablation(monkeypatch):
    monkeypatch.setattr(grappler, "LARGEST_ARGUMENTS", 63)
    assert left_out(products) == {}


def test_no_functions_have_no_ablation():
    assert ops_without_each_pass([]) == {}


def test_errors_of_tensorflow_leave_an_empty_ablation(monkeypatch):
    for error in (
        ValueError("no"),
        tf.errors.InvalidArgumentError(None, None, "no"),
        ImportError("gone"),
    ):

        def fails(*_, error=error, **__):
            raise error

        monkeypatch.setattr(grappler, "_optimized", fails)
        assert left_out(products) == {}, error


def test_dangerous_settings_of_the_user_are_ignored(monkeypatch):
    dangerous = rewriter_config_pb2.RewriterConfig(
        optimizers=["constfold"], memory_optimization="HEURISTICS"
    )
    dangerous.auto_parallel.enable = True
    dangerous.custom_optimizers.add(name="anything")
    dangerous.scoped_allocator_optimization = dangerous.ON
    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.CopyFrom(dangerous)
    monkeypatch.setattr(context.context(), "_config", config)
    ours = rewriter_config()
    assert not ours.optimizers
    assert not ours.custom_optimizers
    assert not ours.HasField("auto_parallel")
    assert ours.memory_optimization == ours.NO_MEM_OPT
    assert ours.scoped_allocator_optimization == ours.DEFAULT


def test_no_source_names_the_pass_that_aborts():
    names = re.compile(r"auto_?parallel", re.IGNORECASE)
    sources = Path(pytest_tfperf.__file__).parent.rglob("*.py")
    assert [path.name for path in sources if names.search(path.read_text("utf-8"))] == []
    assert not any(names.search(name) for name in TOGGLES + NUMBERS)
    for name in ("autoparallel", "auto_parallel"):
        with pytest.raises(CaptureError, match="no option"), grappler_options(**{name: True}):
            pytest.fail("never entered")


def test_running_passes_follow_the_config():
    for options, more, less in (
        ({}, set(), set()),
        ({"debug_stripper": True}, {"debug_stripper"}, set()),
        (
            {"remapping": False, "disable_model_pruning": True},
            set(),
            {"remapping", "disable_model_pruning"},
        ),
        ({"remapping": True, "pin_to_host_optimization": False}, set(), set()),
    ):
        with grappler_options(**options):
            assert set(running(rewriter_config())) == ({*DEFAULT_ON} | more) - less, options
    assert not set(DEFAULT_ON) & set(DEFAULT_OFF)
