"""Passes of https://www.tensorflow.org/guide/graph_optimization: the effect of each on a real graph, counted by hand."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers.function_graphs import after, grappled, types
from helpers.paths import ROOT
from tensorflow.core.protobuf import device_properties_pb2, rewriter_config_pb2

from pytest_tfperf.compiler import grappler
from pytest_tfperf.compiler.grappler import DEFAULT_ON, grappler_options

ONES = tf.ones((8, 8))
PASSES = {
    "arithmetic_optimization": "arithmetic_optimizer",
    "auto_mixed_precision": "auto_mixed_precision",
    "constant_folding": "constant_folding",
    "debug_stripper": "debug_stripper",
    "dependency_optimization": "dependency_optimizer",
    "disable_model_pruning": "model_pruner",
    "function_optimization": "function_optimizer",
    "layout_optimizer": "layout",
    "loop_optimization": "loop_optimizer",
    "pin_to_host_optimization": "pin_to_host_optimizer",
    "remapping": "remapper",
    "scoped_allocator_optimization": "scoped_allocator",
    "shape_optimization": "shape_optimizer",
}
"""The pass of each option, by its name in TensorFlow's log (tensorflow/core/grappler/optimizers/*.h)."""

CHILD = """
import json, sys
import tensorflow as tf
from tensorflow.python.ops import collective_ops
from helpers.function_graphs import after
from pytest_tfperf.compiler.grappler import grappler_options

tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
inner = tf.function(lambda x, y: tf.nn.relu(x) + y, experimental_attributes={"_noinline": True})

@tf.function(input_signature=[tf.TensorSpec((None, None))])
def passes(x):
    return inner(x, tf.constant(2.0)) * 3.0 + tf.cast(tf.reduce_prod(tf.shape(x)), tf.float32)

def reduced(first_key):
    @tf.function
    def sums(x, y):
        found = []
        for device in range(2):
            with tf.device(f"CPU:{device}"):
                for key, value in enumerate((x, y), first_key):
                    found.append(tf.identity(collective_ops.all_reduce(tf.sin(value), 2, 1, key, "Add", "Id")))
        return found

    return after(sums, tf.ones(4), tf.ones(4))

passes(tf.ones((4, 4)))
print("END OF DEFAULTS", file=sys.stderr, flush=True)
off = reduced(1)
with grappler_options(scoped_allocator_optimization=True):
    print(json.dumps([off, reduced(3)]))
"""


@pytest.fixture(scope="module")
def child(processes):
    """Output and log of a child process, which splits its devices and logs its passes from the start."""
    environment = {
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "TF_CPP_VMODULE": "meta_optimizer=1",
        "PYTHONPATH": str(ROOT / "tests"),
    }
    done = subprocess.run(
        [sys.executable, "-c", CHILD], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done


def on_and_off(option, function, *args, on=True):
    """The ops of a function with an option on and off."""
    counts = []
    for value in (on, not on):
        with grappler_options(**{option: value}):
            counts.append(after(function, *args))
    return counts


def test_constant_folding():
    @tf.function
    def products(x):
        constant = tf.constant(np.eye(8, dtype="float32"))
        for _ in range(50):
            constant = tf.matmul(constant, constant)
        return x + constant

    assert on_and_off("constant_folding", products, ONES) == [
        {"Const": 1, "AddV2": 1},
        {"Const": 1, "MatMul": 50, "AddV2": 1},
    ]
    assert after(products, ONES) == {"Const": 1, "AddV2": 1}


@pytest.mark.full
def test_arithmetic():
    @tf.function
    def twice(x):
        return tf.transpose(tf.transpose(x)) + tf.matmul(x, x) * tf.matmul(x, x)

    on, off = on_and_off("arithmetic_optimization", twice, ONES)
    assert on == {"MatMul": 1, "Square": 1, "AddV2": 1}
    assert off == {"Const": 2, "Transpose": 2, "MatMul": 2, "Mul": 1, "AddV2": 1}
    assert after(twice, ONES) == on


def with_a_gpu(monkeypatch, option, function, *args):
    """Nodes of a function after Grappler with a fake GPU, with an option on and off."""
    gpu, cpu = (
        device_properties_pb2.NamedDevice(name=f"/job:localhost/replica:0/task:0/device:{kind}:0")
        for kind in ("GPU", "CPU")
    )
    gpu.properties.type, cpu.properties.type = "GPU", "CPU"
    gpu.properties.environment["architecture"] = "7.5"
    monkeypatch.setattr(grappler, "_devices", lambda: [gpu, cpu])
    called = grappled(function, *args)[0]
    graphs = []
    for value in ("ON", "OFF"):
        config = grappler.rewriter_config()
        setattr(config, option, rewriter_config_pb2.RewriterConfig.Toggle.Value(value))
        graphs.append(grappler._optimized(grappler._inlined(called), config))
    return graphs


@pytest.mark.full
def test_layout(monkeypatch):
    @tf.function
    def convolutions(x, kernel):
        for _ in range(2):
            x = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME"))
        return x

    args = tf.ones((1, 8, 8, 4)), tf.ones((3, 3, 4, 4))
    on, off = with_a_gpu(monkeypatch, "layout_optimizer", convolutions, *args)
    assert types(off) == {"Placeholder": 2, "Conv2D": 2, "Relu": 2}
    assert types(on) == {"Placeholder": 2, "Conv2D": 2, "Relu": 2, "Transpose": 2, "Const": 2}
    assert {node.attr["data_format"].s for node in on.node if node.op == "Conv2D"} == {b"NCHW"}
    with_cpu, without = on_and_off("layout_optimizer", convolutions, *args)
    assert with_cpu == without


@pytest.mark.full
def test_remapper():
    @tf.function
    def layer(x, bias):
        return tf.nn.relu(tf.nn.bias_add(tf.matmul(x, x), bias))

    assert on_and_off("remapping", layer, ONES, tf.ones(8)) == [
        {"_FusedMatMul": 1},
        {"MatMul": 1, "BiasAdd": 1, "Relu": 1},
    ]
    assert after(layer, ONES, tf.ones(8)) == {"_FusedMatMul": 1}


@pytest.mark.full
def test_dependency():
    @tf.function
    def identities(x):
        with tf.control_dependencies([tf.identity(x)]):
            y = tf.identity(x * 2)
        return y + 1

    on, off = on_and_off("dependency_optimization", identities, ONES)
    assert on == {"Const": 2, "Mul": 1, "AddV2": 1}
    assert off == {**on, "Identity": 1}
    assert after(identities, ONES) == on


@pytest.mark.full
def test_pruning():
    @tf.function
    def stopped(x):
        return tf.stop_gradient(x * 2) + 1

    on, off = on_and_off("disable_model_pruning", stopped, ONES, on=False)
    assert on == {"Const": 2, "Mul": 1, "AddV2": 1}
    assert off == {**on, "StopGradient": 1}
    assert after(stopped, ONES) == on


@pytest.mark.full
def test_function():
    inner = tf.function(lambda x, y: tf.nn.relu(x) + y, experimental_attributes={"_noinline": True})

    @tf.function
    def calling(x):
        return inner(x, tf.constant(2.0)) * 3.0

    found = []
    for value in (True, False):
        with grappler_options(function_optimization=value):
            graph = grappled(calling, ONES, name="calling")[2]
        found.append(types(graph)["Const"])
    assert found == [1, 2]  # the argument 2.0 is within the copy


@pytest.mark.full
def test_a_call_is_inlined_whatever_the_option_says():
    inner = tf.function(lambda x: tf.nn.relu(x) + 1)

    @tf.function
    def calling(x):
        return inner(x)

    assert (
        on_and_off("function_optimization", calling, ONES)
        == [{"Const": 1, "Relu": 1, "AddV2": 1}] * 2
    )


@pytest.mark.full
def test_shape():
    @tf.function(input_signature=[tf.TensorSpec((None, None))])
    def size(x):
        return tf.reduce_prod(tf.shape(x)) + 1

    on, off = on_and_off("shape_optimization", size, ONES)
    assert on == {"Const": 1, "Size": 1, "AddV2": 1}
    assert off == {"Const": 2, "Shape": 1, "Prod": 1, "AddV2": 1}
    assert after(size, ONES) == on


@pytest.mark.full
def test_loop():
    @tf.function
    def branch(x):
        return tf.cond(tf.constant(True), lambda: x + 1, lambda: x * 2)

    on, off = on_and_off("loop_optimization", branch, ONES)
    assert on == {"Const": 1, "AddV2": 1}
    assert off == {"Const": 3, "Switch": 2, "AddV2": 1, "Mul": 1, "Merge": 1, "Identity": 1}
    assert after(branch, ONES) == on


@pytest.mark.full
def test_scoped_allocator(child):
    off, on = json.loads(child.stdout)
    assert off["CollectiveReduce"] == 4  # two tensors on each of two devices
    assert (
        on["CollectiveReduce"]
        == on["_ScopedAllocator"]
        == on["_ScopedAllocatorConcat"]
        == on["_ScopedAllocatorSplit"]
        == 2
    )


@pytest.mark.full
def test_pin_to_host(monkeypatch):
    @tf.function
    def counting(n, x):
        return n * 2 + 3, x * 2.0

    on, off = with_a_gpu(monkeypatch, "pin_to_host_optimization", counting, tf.constant(3), ONES)
    assert types(on) == types(off)
    devices = [
        {node.name: node.device[-5:] for node in graph.node if node.op == "Const"}
        for graph in (on, off)
    ]
    assert devices[0] == {
        "mul/y": "CPU:0",
        "add/y": "CPU:0",
        "mul_1/y": "GPU:0",
    }  # 2, 3, and 2.0, which is not an integer
    assert set(devices[1].values()) == {"GPU:0"}


def has_avx512():
    """
    Return whether oneDNN computes in bfloat16 on this processor.

    Source: IsBF16SupportedByOneDNNOnThisCPU in tensorflow/core/util/util.h.
    """
    processor = Path("/proc/cpuinfo")
    return processor.is_file() and "avx512f" in processor.read_text()


@pytest.mark.full
@pytest.mark.skipif(
    not has_avx512(), reason="oneDNN computes in bfloat16 only where there is AVX-512"
)
@pytest.mark.parametrize(
    "option", ["auto_mixed_precision_onednn_bfloat16", "auto_mixed_precision_mkl"]
)
def test_auto_mixed_precision(option):
    @tf.function
    def products(x):
        return tf.matmul(tf.nn.relu(tf.matmul(x, x)), x)

    on, off = on_and_off(option, products, ONES)
    assert off == after(products, ONES) == {"MatMul": 2, "Relu": 1}
    assert on == {**off, "Cast": 2}  # x to bfloat16, the result back
    with grappler_options(**{option: True}):
        graph = grappled(products, ONES)[2]
    assert {node.attr["T"].type for node in graph.node if node.op == "MatMul"} == {
        tf.bfloat16.as_datatype_enum
    }


@pytest.mark.full
def test_debug_stripper():
    @tf.function
    def checked(x):
        tf.debugging.assert_less(x, 5.0)
        tf.print(x, output_stream="file:///dev/null")
        return tf.debugging.check_numerics(x, "not a number") * 2

    on, off = on_and_off("debug_stripper", checked, ONES)
    assert {op: off[op] for op in ("Assert", "PrintV2", "StringFormat", "CheckNumerics")} == {
        "Assert": 1,
        "PrintV2": 1,
        "StringFormat": 1,
        "CheckNumerics": 1,
    }
    assert not {"Assert", "PrintV2", "StringFormat", "CheckNumerics"} & set(on)
    assert after(checked, ONES) == off


@pytest.mark.skipif(
    tf.__version__.startswith("2.20."), reason="TensorFlow 2.20 ignores TF_CPP_VMODULE: no log"
)
@pytest.mark.full
def test_the_passes_that_run_by_default_are_those_of_the_ablation(child):
    ran = set(
        re.findall(
            r"meta_optimizer\.cc:\d+\] (\w+?)(?:\{.*?\})?: Graph size after",
            child.stderr.partition("END OF DEFAULTS")[0],
        )
    )
    assert {option for option, name in PASSES.items() if name in ran} == set(DEFAULT_ON)
