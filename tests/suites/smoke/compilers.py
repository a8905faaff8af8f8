"""What the compilers did: executables, launches, fusions, compilations, retraces, HLO."""

import pytest
import tensorflow as tf
from steps import BATCHES, COLUMNS, ROWS, batches, compiled_step, model, pairs, plain_step

SHORT = {"warmup": 2, "steps": 6, "trace_steps": 4}


@pytest.mark.tfperf(xla_clusters=1, xla_launches=1, max_xla_compiles=0, min_xla_coverage=1, **SHORT)
def test_one_executable(tf_profile):
    profile = tf_profile(compiled_step(), batches())
    assert profile.fusions >= 1
    assert profile.xla_compile_time > 0
    assert profile.flops >= 2 * ROWS * ROWS * COLUMNS
    (row,) = profile.tables["executables"].records()
    assert (row["executable"], row["runs"]) == ("step", 1)
    assert row["ops"] >= 2


@pytest.mark.tfperf(xla_clusters=0, xla_launches=0, fusions=0, max_xla_coverage=0, **SHORT)
def test_no_executable(tf_profile):
    profile = tf_profile(plain_step(), batches())
    assert profile.xla_compile_time == 0
    assert profile.graph_ops > 2


@pytest.mark.tfperf(**SHORT)
def test_each_call_is_a_launch(tf_profile):
    first, second = compiled_step(), compiled_step()

    def step(x):
        for _ in range(3):
            first(x)
        second(x)

    profile = tf_profile(step, batches())
    assert (profile.xla_clusters, profile.xla_launches) == (2, 4)


@pytest.mark.tfperf(**SHORT)
def test_loops_and_branches_are_inside_of_one_launch(tf_profile):
    @tf.function(jit_compile=True)
    def step(x):
        for _ in tf.range(4):
            x = tf.tanh(x)
        return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.sin(x), lambda: tf.cos(x) * 2.0)

    profile = tf_profile(lambda x: (step(x), step(-x)), batches())
    assert (profile.xla_clusters, profile.xla_launches) == (1, 2)


@pytest.mark.tfperf(**SHORT)
def test_compilations_are_counted(tf_profile):
    data = [tf.ones((n, COLUMNS)) for n in (8, 9, 8, 10)] * 3
    profile = tf_profile(compiled_step(), data)
    assert profile.xla_compiles == 2


def test_compilations_in_a_trace_are_counted(tf_profile):
    step = compiled_step()
    with tf_profile.trace() as trace:
        for n in (8, 9, 8, 10):
            with trace.step():
                step(tf.ones((n, COLUMNS)))
    assert tf_profile.profile.xla_compiles == 2


@pytest.mark.xfail(strict=True, reason="the limit is broken")
@pytest.mark.tfperf(max_xla_clusters=0, **SHORT)
def test_a_limit_fails(tf_profile):
    tf_profile(compiled_step(), batches())


@pytest.mark.tfperf(**SHORT)
def test_retraces_are_counted(tf_profile):
    step = tf.function(lambda x, n: x * n)
    profile = tf_profile(step, [(tf.ones(4), n % 4) for n in range(12)])
    assert profile.retraces == 3


@pytest.mark.tfperf(xla_launches=1, max_xla_compiles=0, **SHORT)
def test_keras_compiles_its_step(tf_profile):
    tf_profile.fit(model(jit_compile=True), pairs())


@pytest.mark.tfperf(autocluster=True, xla_clusters=1, max_retraces=0, **SHORT)
def test_auto_clustering(tf_profile):
    step = tf.function(lambda x: tf.reduce_sum(tf.tanh(x @ tf.transpose(x)) * 2.0 + x[0, 0]))
    tf_profile(step, [tf.ones((64, 64))] * BATCHES)


@pytest.mark.tfperf(**SHORT)
@pytest.mark.parametrize("stage", ["unoptimized", "optimized"])
def test_hlo_is_exported(tf_profile, tmp_path, stage):
    tf_profile(compiled_step(), batches())
    tf_profile.export(tmp_path / "step.txt", stage=stage)
    text = (tmp_path / "step.txt").read_text()
    assert "ENTRY" in text
    assert (" fusion(" in text) == (stage == "optimized")


@pytest.mark.tfperf(**SHORT)
def test_a_timeline_is_exported(tf_profile, tmp_path):
    tf_profile(compiled_step(), batches())
    tf_profile.export(tmp_path / "step.json.gz")
    assert (tmp_path / "step.json.gz").stat().st_size > 1000
