"""Every form of a profile with steps of JAX, as users write them."""

import os
import sys
from collections import Counter

os.environ["JAX_ENABLE_X64"] = "1"  # as a user's shell sets it

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pytest_tfperf.capture import sessions
from pytest_tfperf.trace.xspace import read_trace

FEW = {"warmup": 3, "steps": 12, "trace_steps": 6}
DATA = [np.ones((64, 64), "float32")] * 40


@jax.jit
def loss(x):
    return jnp.tanh(x @ x).sum()


def test_a_loop_of_the_user(tf_profile):
    for batch in tf_profile.steps(DATA, **FEW):
        loss(batch)
    assert tf_profile.profile.xla_launches == 1
    assert tf_profile.profile.value("input_wait").number is not None


def test_64_bits_from_the_environment(tf_profile):
    increment = jax.jit(lambda x: x + 1)
    found = tf_profile(lambda: increment(np.ones((64, 64))), **FEW)
    assert found.peak_memory == 2 * 8 * 64**2
    assert tf_profile._test.environment()["setting"]["precision"] == "x64"


def test_a_trace_is_read_once_and_that_of_the_first_step_twice(tf_profile, monkeypatch):
    """If that were kept meanwhile, it would count as memory of the steps."""
    reads = Counter()

    def counted(path):
        reads[path] += 1
        return read_trace(path)

    monkeypatch.setattr(sessions, "read_trace", counted)
    tf_profile(lambda: loss(DATA[0]), **FEW)
    with tf_profile.trace("bare"):
        loss(DATA[0])
    (driven, _), (bare, _) = tf_profile._profiles.recordings.values()
    assert [reads[one] for one in (driven.cold, driven.trace, bare.trace)] == [2, 1, 1]


def test_no_step_is_probed_for_graphs_of_tensorflow(tf_profile):
    calls = []
    tf_profile(lambda: calls.append(loss(DATA[0])), **FEW)
    assert len(calls) <= 1 + FEW["warmup"] + FEW["steps"] + FEW["trace_steps"] + 3  # counted


def test_a_trace_is_written_alone(tf_profile):
    """JAX writes it as JSON too, which takes longer than the trace itself."""
    tf_profile(lambda: loss(DATA[0]), **FEW)
    ((recording, _),) = tf_profile._profiles.recordings.values()
    assert list(recording.trace.parent.iterdir()) == [recording.trace]


def test_bracketed_steps(tf_profile):
    loss(DATA[0])
    with tf_profile.trace() as trace:
        for batch in DATA[:5]:
            with trace.step():
                loss(batch).block_until_ready()
    assert len(tf_profile.profile.steps) == 5
    assert tf_profile.profile.xla_launches == 1
    assert tf_profile.profile.flops == pytest.approx(2 * 64**3, rel=0.1)


def test_variants(tf_profile):
    x = jnp.ones((300, 300))
    slow = jax.jit(lambda x: x @ x @ x @ x)
    quick = jax.jit(lambda x: x @ (x @ x) @ x)
    found = tf_profile.compare(
        {"slow": lambda: slow(x), "quick": lambda: quick(x)}, warmup=3, trace_steps=3
    )
    assert set(found.profiles) == {"slow", "quick"}


@pytest.mark.tfperf(max_xla_compiles=0, max_retraces=0, eager_ops=0)
def test_the_marker_alone():
    for batch in DATA[:6]:
        loss(batch)
    assert "keras" not in sys.modules  # it would import TensorFlow


def test_variants_with_other_outputs_are_an_error(tf_profile):
    with pytest.raises(AssertionError, match="return different outputs"):
        tf_profile.compare({"a": lambda: loss(DATA[0]), "b": lambda: loss(DATA[0]) + 1000})


def test_an_update_of_a_state_is_restored_by_its_user(tf_profile):
    with pytest.raises(Exception, match="restore= takes Keras models"):
        tf_profile(lambda: loss(DATA[0]), restore=jnp.ones(3))


def test_exports(tf_profile, tmp_path):
    tf_profile(lambda: loss(DATA[0]), **FEW)
    tf_profile.export(tmp_path / "timeline.json")
    tf_profile.export(tmp_path / "step.txt")
    assert "HloModule jit_loss" in (tmp_path / "step.txt").read_text()
    tf_profile.export(tmp_path / "raw.txt", stage="unoptimized")
    assert "HloModule jit_loss" in (tmp_path / "raw.txt").read_text()
