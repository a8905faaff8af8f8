"""Steps of JAX and of TensorFlow in one process: each profile is of what its own steps ran."""

import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.capture.sessions import Session, user_session_runs
from pytest_tfperf.errors import CaptureError

FEW = {"warmup": 3, "steps": 12, "trace_steps": 6}
BATCH = np.ones((32, 32), "float32")
jax_step = jax.jit(lambda x: x @ x)
tf_step = tf.function(lambda x: x @ x, jit_compile=True)


def platform(tf_profile):
    return tf_profile._test.environment()["platform"]


def test_a_step_of_tensorflow_before_jax_has_a_device(tf_profile):
    assert tf_profile(lambda: tf_step(BATCH), **FEW).xla_launches == 1
    assert "TensorFlow" in platform(tf_profile)


def test_jax_starts_in_the_first_step(tf_profile):
    found = tf_profile(lambda: jax_step(BATCH), **FEW)
    assert (found.xla_launches, found.xla_compiles) == (1, 0)
    assert found.flops == 2 * 32**3
    assert "JAX" in platform(tf_profile)


def test_a_step_of_tensorflow_beside_a_jax_that_runs(tf_profile):
    jnp.ones(3)
    found = tf_profile(lambda: tf_step(BATCH), **FEW)
    assert found.flops == 2 * 32**3
    assert "JAX" not in platform(tf_profile)


@pytest.mark.tfperf(tpu="v6e", findings="all")
def test_padding_is_that_of_the_same_step_in_tensorflow(tf_profile):
    rows, w = np.ones((300, 100), "float32"), np.ones((100, 50), "float32")
    in_jax = jax.jit(lambda x, w: jax.nn.relu(x @ w))
    in_tf = tf.function(lambda x, w: tf.nn.relu(x @ w), jit_compile=True)
    arguments = tf.constant(rows), tf.constant(w)
    found = tf_profile(lambda: in_jax(rows, w), **FEW)
    other = tf_profile(lambda: in_tf(*arguments), name="tf", **FEW)
    assert found.padding_overhead == other.padding_overhead > 0
    assert found.mxu_padding_overhead == other.mxu_padding_overhead > 0
    assert found.op_guide_findings == other.op_guide_findings == 0
    assert found.flops == other.flops == 2 * 300 * 100 * 50 + 300 * 50


def test_a_step_of_jax_on_a_dataset_of_tensorflow(tf_profile):
    data = tf.data.Dataset.from_tensors(BATCH).repeat(100)
    found = tf_profile(lambda x: jax_step(x.numpy()), data, **FEW)
    assert "JAX" in platform(tf_profile)
    assert found.xla_launches == 1
    assert found.value("input_wait").number is not None


def slowly(seconds):
    """A map that runs Python for so long."""
    return lambda x: tf.py_function(lambda y: (time.sleep(seconds), y)[1], [x], tf.float32)


def test_the_stage_that_a_step_of_jax_waits_for_is_named(tf_profile):
    data = tf.data.Dataset.from_tensors(BATCH).repeat(2000).map(slowly(0.05))
    found = tf_profile(lambda x: jax_step(x.numpy()), data, **FEW)
    assert found.input_bound > 0.8
    assert found.value("input_bound").detail["where"].startswith("stage Map")
    assert 12 < found.value("input_capacity").number < 1 / 0.05
    assert any("TensorFlow ops" in advice.what for advice in found.advice)


def test_a_full_prefetch_buffer_hides_no_slow_pipeline_from_jax(tf_profile):
    """The buffer fills in the first step, and lasts for some 75 steps of 2 ms, whose next() a py_function delays."""

    def step(x):
        time.sleep(0.002 if filled else 0.5)
        filled.append(True)
        return jax_step(x.numpy())

    filled = []
    data = tf.data.Dataset.from_tensors(BATCH).repeat(2000).map(slowly(0.006)).prefetch(50)
    found = tf_profile(step, data)  # fewer steps than usual would not tell
    assert found.input_bound > 0.1


def test_a_step_of_both_leaves_counts_unknown_and_times_known(tf_profile):
    found = tf_profile(lambda: jax_step(tf_step(BATCH).numpy()), **FEW)
    assert found.step_time > 0
    assert "the step ran JAX beside TensorFlow" in found.value("xla_launches").why
    assert "the step ran JAX beside TensorFlow" in found.value("retraces").why
    assert "TensorFlow" in platform(tf_profile)


def test_a_trace_that_cannot_be_written_leaves_no_session_open(tmp_path):
    session = Session(tmp_path)
    for folder in tmp_path.iterdir():
        (folder / "plugins").write_text("a file, where the trace needs a folder")
    with pytest.raises(CaptureError, match="TensorFlow's profiler could not write its trace"):
        session.stop()
    assert not user_session_runs()


def test_a_trace_without_a_file_leaves_no_session_open(tmp_path, monkeypatch):
    session = Session(tmp_path)
    with monkeypatch.context() as patched, pytest.raises(CaptureError, match="profiler wrote no"):
        patched.setattr(Path, "glob", lambda *_: ())
        session.stop()
    assert not user_session_runs()


@pytest.mark.tfperf(max_retraces=0)
def test_the_marker_alone_around_jax():
    for _ in range(5):
        jax_step(BATCH)


@pytest.mark.tfperf(max_retraces=0, max_eager_ops=1)
def test_the_marker_alone_around_tensorflow():
    for _ in range(5):
        tf_step(BATCH)
