"""`--tfperf-against` with TensorFlow: a suite with every form of profile, and one of steps that are really slower than on the ref."""

import pytest
from helpers.paired_project import Project, picture

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]

MODEL = """
import tensorflow as tf

ROUNDS, TIMES = {rounds}, {times}
WEIGHTS = tf.Variable(tf.random.stateless_normal((256, 256), (1, 2)) * 0.01)

@tf.function
def step(x):
    return tf.tanh(x @ WEIGHTS)

@tf.function
def slower(x):
    for _ in tf.range(ROUNDS):
        x = tf.tanh(x @ WEIGHTS)
    return x
"""
PRELUDE = """
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import model

DATA = tf.data.Dataset.from_tensor_slices(np.ones((512, 8), "float32")).batch(32).map(lambda x: (x, x))
X = tf.ones((64, 256))
"""
FORMS = """
@pytest.mark.tfperf(max_regression="40%", max_retraces=0)
def test_loop(tf_profile):
    for x in tf_profile.steps(tf.data.Dataset.from_tensors(X).repeat()):
        model.step(x)
    tf_profile(model.step, [X], name="again")

@pytest.mark.tfperf(max_regression="60%")
def test_keras(tf_profile):
    layers = [keras.layers.Dense(8), keras.layers.Dense(8)]
    network = keras.Sequential([keras.Input((8,)), *layers])
    network.compile("sgd", "mse")
    history = tf_profile.fit(network, DATA, epochs=1, verbose=0).result
    assert history.epoch == [0]

def test_trace(tf_profile):
    model.step(X)
    with tf_profile.trace() as trace:
        for _ in range(3):
            with trace.step():
                model.step(X)

@pytest.mark.tfperf(max_eager_ops=5)
def test_marked():
    model.step(X)
"""
SLOWER = """
@pytest.mark.tfperf(max_regression="20%")
def test_slower(tf_profile):
    tf_profile(lambda: model.slower(X))

@pytest.mark.tfperf(max_regression="40%")
def test_tenfold(tf_profile):
    for x in tf_profile.steps(tf.data.Dataset.from_tensors(X).repeat()):
        model.step(x)
        time.sleep(0.005 * model.TIMES)  # the load under test: a step is slow
"""
INI = "[pytest]\npythonpath = src\naddopts = -p tfperf -p no:cacheprovider\ntfperf_warmup = 2\ntfperf_steps = 8\ntfperf_trace_steps = 3\n"


def run_of(folder, suite, budget):
    project = Project(
        folder,
        {
            "pytest.ini": INI,
            "src/model.py": MODEL.format(rounds=10, times=1),
            "test_suite.py": PRELUDE + suite,
        },
        {"src/model.py": MODEL.format(rounds=20, times=10)},
        plugin=None,
    )
    before = picture(project.path)
    run = project.run(
        "-v", f"--tfperf-budget={budget}", TF_CPP_MIN_LOG_LEVEL="2", CUDA_VISIBLE_DEVICES="-1"
    )
    assert picture(project.path) == before
    return run


TIME = ("", "step_time")
NO_ALARM = ("PASS", "IMPROVED", "INCONCLUSIVE")  # which of them is the machine's noise


def test_every_form_of_profile_is_compared(tmp_path):
    run = run_of(tmp_path, FORMS, 1)
    for test in ("test_loop", "test_keras"):
        verdict, message = run.checks(test)[TIME]
        assert verdict in NO_ALARM, (test, message)
        assert "pairs of turns" in message, test
        undecided = "INCONCLUSIVE" in [one for one, _ in run.checks(test).values()]  # any profile
        assert run.words(test) == ["INCONCLUSIVE" if undecided else "PASSED"], test
    # each profile of a test has turns; limits hold, and structure is compared
    assert run.checks("test_loop")["again", "step_time"][0] in NO_ALARM
    assert run.checks("test_loop", "limit")["", "retraces"][0] == "PASS"
    for metric in ("retraces", "graph_ops"):
        assert run.checks("test_loop")["again", metric][0] == "PASS", metric
    # forms without times are compared in their structure
    for test in ("test_trace", "test_marked"):
        verdict, message = run.checks(test)[TIME]
        assert verdict == "INCONCLUSIVE", test
        assert "only tf_profile(step, data)" in message, test
        assert run.words(test) == ["INCONCLUSIVE"], test


@pytest.mark.nightly  # a busy machine may leave them undecided
def test_slower_steps_are_regressions(tmp_path):
    run = run_of(tmp_path, SLOWER, 6)
    verdict, message = run.checks("test_slower")[TIME]
    assert verdict == "REGRESSION", message
    assert " pairs of processes (" in message
    assert run.words("test_slower") == ["PERF"]
    # a tenfold time after few turns
    verdict, message = run.checks("test_tenfold")[TIME]
    assert verdict == "REGRESSION", message
    assert "pairs of turns of the same code differ by up to 3 times" in message
    assert run.status == 1
    assert "2 failed" in run.text
