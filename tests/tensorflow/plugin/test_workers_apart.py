"""`tf_profile.workers` with two processes of real TensorFlow, which train apart, without collectives."""

import json

import pytest

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]

SUITE = """
import json, os

import pytest
import tensorflow as tf

def task():
    return json.loads(os.environ["TF_CONFIG"])["task"]["index"]

@pytest.mark.tfperf(max_retraces=0, eager_ops=0)
def test_workers(tf_profile):
    def measure():
        train, x = tf.function(lambda x: x @ x), tf.ones((4, 4))
        step = (lambda: train(x)) if task() == 0 else (lambda: tf.add(train(x), x))
        return tf_profile(step, warmup=1, steps=4, trace_steps=2)

    found = tf_profile.workers(2, measure, name="apart", limits=dict(max_step_skew="1%"))
    assert [one.name for one in found] == ["apart worker 0", "apart worker 1"]
    assert list(tf_profile.profiles) == [one.name for one in found]
    assert "TF_CONFIG" not in os.environ
"""


LIMITED = """
import tensorflow as tf

def test_limited(tf_profile):
    def measure():
        step, x = tf.function(lambda x: x @ x), tf.ones((4, 4))
        return tf_profile(
            lambda: step(x), warmup=1, steps=4, trace_steps=2, limits={"max_retraces": 0}
        )

    tf_profile.workers(2, measure)
"""


def test_limits_in_a_worker_would_decide_nothing_and_are_refused(pytester):
    pytester.makepyfile(LIMITED)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*limits= of a profile in a worker decides nothing: give it to tf_profile.workers*"]
    )


def test_each_worker_is_a_process_with_a_profile_and_limits(pytester):
    pytester.makepyfile(SUITE)
    options = ("-p", "no:cacheprovider", "--tfperf-report=run.json")
    result = pytester.runpytest_inprocess(*options)
    result.assert_outcomes(failed=1)
    why = "*step_skew is unknown, limit 1 %*the trace of worker 0, worker 1 shows no collective*"
    result.stdout.fnmatch_lines([why])
    [test] = json.loads((pytester.path / "run.json").read_text())["tests"]
    verdicts = {(one["profile"], one["metric"]): one["verdict"] for one in test["checks"]}
    assert verdicts == {
        ("apart worker 0", "retraces"): "PASS",
        ("apart worker 0", "eager_ops"): "PASS",
        ("apart worker 0", "step_skew"): "UNKNOWN",
        ("apart worker 1", "retraces"): "PASS",
        ("apart worker 1", "eager_ops"): "FAIL",
        ("apart worker 1", "step_skew"): "UNKNOWN",
    }
    first, second = test["profiles"]
    assert [len(one["steps"]) for one in (first, second)] == [2, 2]
    assert "workers" in first["tables"]
    assert "workers" not in second["tables"]
