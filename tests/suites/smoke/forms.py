"""Every form of the README: a call, a loop, Keras, the marker alone, a trace of one's own."""

import pytest
import tensorflow as tf
from steps import BATCHES, ROWS, batches, compiled_step, model, pairs, plain_step

SHORT = {"warmup": 2, "steps": 6, "trace_steps": 4}


@pytest.mark.tfperf(
    max_retraces=0, max_xla_compiles=0, eager_ops=0, max_input_bound="100%", **SHORT
)
def test_a_call(tf_profile):
    profile = tf_profile(plain_step(), batches())
    assert profile.step_time > 0
    assert profile.throughput > 0
    assert profile.workload["batch"] == ROWS


@pytest.mark.tfperf(max_retraces=0, **SHORT)
def test_a_loop(tf_profile):
    step = plain_step()
    for batch in tf_profile.steps(batches()):
        step(batch)
    assert tf_profile.profile.step_time > 0


@pytest.mark.tfperf(max_retraces=0, **SHORT)
@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
def test_keras(tf_profile, method):
    profile = getattr(tf_profile, method)(model(), pairs())
    assert profile.step_time > 0


@pytest.mark.tfperf(max_retraces=0, **SHORT)
def test_the_marker_alone_with_keras():
    model().fit(pairs().repeat(), steps_per_epoch=100, epochs=2, verbose=0)


@pytest.mark.tfperf(max_retraces=0, xla_clusters=0, xla_launches=0, max_xla_compiles=0)
def test_the_marker_alone_with_a_function():
    step = plain_step()
    for batch in batches():
        step(batch)


@pytest.mark.tfperf(xla_clusters=1, xla_launches=1, max_xla_compiles=0)
def test_the_marker_alone_with_a_compiled_function():
    step = compiled_step()
    for batch in batches():
        step(batch)


def test_a_trace(tf_profile):
    step = compiled_step()
    with tf_profile.trace() as trace:
        for batch in batches():
            with trace.step():
                step(batch)
    profile = tf_profile.profile
    assert len(profile.steps) == BATCHES
    assert (profile.xla_launches, profile.xla_compiles, profile.retraces) == (1, 0, 0)


@pytest.mark.tfperf(**SHORT)
def test_options_of_a_call(tf_profile):
    variable = tf.Variable(0.0)

    def step():
        for _ in range(3):
            variable.assign_add(1.0)

    profile = tf_profile(step, steps_per_call=3, restore=[variable], latency=True, name="loops")
    assert profile.eager_ops >= 1
    assert float(variable) == 0.0


@pytest.mark.tfperf(**SHORT)
def test_grappler_s_options(tf_profile):
    with tf_profile.grappler(constant_folding=False):
        tf_profile(plain_step(), batches(), limits={"max_retraces": 0})


@pytest.mark.tfperf(**SHORT)
def test_variants(tf_profile):
    data = next(iter(batches()))
    plain, compiled = (tf.function(tf.tanh, jit_compile=jit) for jit in (False, True))
    found = tf_profile.compare({"plain": lambda: plain(data), "xla": lambda: compiled(data)})
    assert found.profiles["plain"].xla_clusters == 0
    assert found.profiles["xla"].xla_clusters == 1
    assert found.speedup("xla", over="plain").ratio > 0
