"""Remedies of the process: when a profile suggests them, and the environment that they set."""

import pytest
import tensorflow as tf

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.framework import JAX, TENSORFLOW
from pytest_tfperf.remedies import process
from pytest_tfperf.remedies.remedy import Call
from pytest_tfperf.remedies.trial import refuse
from pytest_tfperf.results import Profile
from pytest_tfperf.values import Column, Source, Table, Value

MANY_CORES = range(4)


@pytest.fixture(autouse=True)
def plain_machine(monkeypatch):
    monkeypatch.setattr(process, "usable_cores", lambda: tuple(MANY_CORES))
    monkeypatch.setattr(process, "has_accelerators", lambda: False)
    monkeypatch.setattr(process.platform, "machine", lambda: "x86_64")
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "TF_XLA_FLAGS", "XLA_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")


def call_of(framework=TENSORFLOW, ops=(), **numbers):
    """A call whose steps take 10 ms, with these metrics and ops on the host: type, occurrences, seconds."""
    numbers = {"step_time": 0.01, "input_bound": 0.0, **numbers}
    metrics = {name: Value.of(name, number, Source.TRACE) for name, number in numbers.items()}
    columns = [Column(name, name) for name in ("where", "type", "occurrences", "self_s")]
    table = Table.of("ops", columns, [("host", *op) for op in ops])
    profile = Profile(name="", metrics=metrics, tables={"host_ops": table})
    return Call(step=lambda: None, profile=profile, framework=framework)


def suggested(*args, **numbers):
    return {one.name for one in process.REMEDIES if one.applies(call_of(*args, **numbers))}


def test_what_the_profile_shows_decides_what_is_tried(monkeypatch):
    autoclustering, one_dnn = "TF_XLA_FLAGS=--tf_xla_auto_jit=2", "TF_ENABLE_ONEDNN_OPTS switched"
    one_thread = "TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1"
    assert suggested() == set()
    assert suggested(xla_coverage=0.5) == {autoclustering}
    assert suggested(xla_coverage=1.0) == set()
    assert suggested(xla_coverage=0.5, input_bound=0.96) == set()
    assert suggested(JAX, xla_coverage=0.5) == set()
    assert suggested(ops=[("MatMul", 1, 0.005)]) == {one_dnn}
    assert suggested(ops=[("AddV2", 1, 0.005)]) == set()
    assert suggested(ops=[("AddV2", 400, 0.005)]) == {one_thread}
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "1")
    assert suggested(ops=[("AddV2", 400, 0.005)]) == {"thread pools with a thread for each core"}
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "4")
    assert suggested() == set()


def test_gpus_have_remedies_of_their_own(monkeypatch):
    monkeypatch.setattr(process, "has_accelerators", lambda: True)
    waits = {"TF_GPU_THREAD_MODE=gpu_private", "TF_GPU_ALLOCATOR=cuda_malloc_async"}
    overlap = "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true"
    assert suggested(device_busy=0.99) == set()
    assert suggested(device_busy=0.5) == waits
    assert suggested(JAX, device_busy=0.5) == set()
    assert suggested(JAX, collective_time=0.2, xla_launches=1) == {overlap}
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=b")
    assert process.LatencyHiding().environment() == {
        "XLA_FLAGS": "--xla_a=b --xla_gpu_enable_latency_hiding_scheduler=true"
    }


def test_the_code_to_type_is_a_variable_or_the_call_that_made_pools_small(monkeypatch):
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")
    remedy = process.AllCores()
    assert remedy.environment() == {"TF_NUM_INTRAOP_THREADS": "4"}
    shown = "in the environment, before Python starts: TF_NUM_INTRAOP_THREADS=4"
    assert remedy.write(call_of()) == shown
    getter = tf.config.threading.get_intra_op_parallelism_threads
    monkeypatch.setattr(tf.config.threading, getter.__name__, lambda: 2)
    assert remedy.write(call_of()) == "without tf.config.threading.set_intra_op_parallelism_threads"
    quoted = process.Autoclustering().write(call_of())
    assert quoted.endswith("TF_XLA_FLAGS='--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit'")


def test_steps_of_a_strategy_are_refused():
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")

    def step():
        return strategy.run(lambda: tf.constant(1))

    for one in (step, tf.function(step)):
        with pytest.raises(CaptureError, match="strategy"):
            refuse(Call(step=one))
    refuse(Call(step=lambda: tf.constant(1)))
