"""Executables of real traces of TensorFlow, against what TensorFlow itself says of them."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from types import SimpleNamespace

import pytest
import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2

from pytest_tfperf.metrics.evidence import Evidence
from pytest_tfperf.metrics.profile import profile_of
from pytest_tfperf.recording import Recording
from pytest_tfperf.trace.xspace import read_trace


def session(folder, step, n_steps):
    """The trace of so many calls, each marked as a step."""
    tf.profiler.experimental.start(str(folder))
    try:
        for number in range(n_steps):
            with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
                step()
    finally:
        tf.profiler.experimental.stop()
    return read_trace(next(folder.glob("plugins/profile/*/*.xplane.pb")))


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    weights = tf.Variable(tf.ones((64, 32)))

    @tf.function(jit_compile=True)
    def train(x):
        loss = tf.reduce_mean(tf.nn.softmax(tf.nn.relu(x @ weights)))
        weights.assign_sub(tf.ones_like(weights) * loss)
        return loss

    @tf.function(jit_compile=True)
    def evaluate(x):
        return tf.reduce_sum(tf.tanh(x @ weights))

    @tf.function
    def step(x):
        return train(x) + evaluate(x)

    x = tf.ones((8, 64))
    cold = session(tmp_path_factory.mktemp("cold"), lambda: step(x), 1)
    warm = session(tmp_path_factory.mktemp("warm"), lambda: step(x), 3)
    driven = Recording(name="", trace=None, workload={}, n_steps=4)
    irs = {
        name: found.experimental_get_compiler_ir(x)
        for name, found in (("train", train), ("evaluate", evaluate))
    }
    protos = {name: ir(stage="optimized_hlo_proto_serialized") for name, ir in irs.items()}
    profile = profile_of(Evidence(driven, warm, cold))
    return SimpleNamespace(
        profile=profile,
        rows={row["executable"]: row for row in profile.tables["executables"].records()},
        cold_step_s=profile_of(Evidence(driven, cold, cold)).steps[0].period_s,
        proto={name: hlo_pb2.HloProto.FromString(raw) for name, raw in protos.items()},
    )


def test_fusions_are_those_of_tensorflow_s_own_proto(live):
    counted = {
        name: sum(
            op.opcode == "fusion"
            for part in proto.hlo_module.computations
            for op in part.instructions
        )
        for name, proto in live.proto.items()
    }
    assert min(counted.values()) > 0
    assert {name: row["fusions"] for name, row in live.rows.items()} == counted
    assert live.profile.fusions == sum(counted.values())
    assert "low" not in live.profile.value("fusions").detail


def test_buffers_are_those_of_tensorflow_s_own_proto(live):
    for name, row in live.rows.items():
        buffers = live.proto[name].buffer_assignment.buffer_allocations
        parameters = sum(one.size for one in buffers if one.is_entry_computation_parameter)
        assert row["arguments"] == parameters == 4 * (8 * 64 + 64 * 32)
        assert row["outputs"] == sum(one.size for one in buffers if one.maybe_live_out) > 0
        kept = [
            one
            for one in buffers
            if one.is_entry_computation_parameter
            or one.maybe_live_out
            or one.is_thread_local
            or one.is_constant
        ]
        assert row["temporaries"] == sum(one.size for one in buffers) - sum(
            one.size for one in kept
        )


def test_each_ran_once_a_step(live):
    assert {name: row["runs"] for name, row in live.rows.items()} == {"train": 1, "evaluate": 1}
    assert all(
        row["flops"] >= 2 * 8 * 64 * 32 and row["accessed"] >= 4 * (8 * 64 + 64 * 32)
        for row in live.rows.values()
    )


def test_both_were_compiled_in_the_cold_step_and_none_later(live):
    assert all(0 < row["compile_s"] < live.cold_step_s for row in live.rows.values())
    assert (
        max(row["compile_s"] for row in live.rows.values())
        <= live.profile.xla_compile_time
        < live.cold_step_s
    )
    assert (
        live.profile.xla_compile_time <= sum(row["compile_s"] for row in live.rows.values()) + 1e-9
    )
    where = live.profile.value("xla_compile_time").detail["where"]
    assert where.startswith("compiled: ")
    assert "train " in where
    assert "evaluate " in where
