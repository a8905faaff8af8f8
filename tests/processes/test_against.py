"""`--tfperf-against` with TensorFlow: one run of a suite that has every form of profile, on a step that is really slower than on the ref."""

import pytest
from helpers.paired_project import Project, picture

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]

MODEL = """
import tensorflow as tf

ROUNDS, SCALE, TIMES = {rounds}, {scale}, {times}
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
SUITE = """
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import model

DATA = tf.data.Dataset.from_tensor_slices(np.ones((4096, 8), "float32")).batch(32).map(lambda x: (x, x))
X = tf.ones((64, 256))

@pytest.mark.tfperf(max_regression="40%")
def test_same(tf_profile):
    tf_profile(model.step, [X])

@pytest.mark.tfperf(max_regression="20%")
def test_slower(tf_profile):
    tf_profile(lambda: model.slower(X))

@pytest.mark.tfperf(max_regression="40%", max_retraces=0)
def test_loop(tf_profile):
    for x in tf_profile.steps(tf.data.Dataset.from_tensors(X).repeat()):
        model.step(x)
    tf_profile(model.step, [X], name="again")

@pytest.mark.tfperf(max_regression="60%")
def test_keras(tf_profile):
    layers = [keras.layers.Dense(8 * model.SCALE), keras.layers.Dense(8)]
    network = keras.Sequential([keras.Input((8,)), *layers])
    network.compile("sgd", "mse")
    history = tf_profile.fit(network, DATA, epochs=1, verbose=0).result
    assert history.epoch == [0]

@pytest.mark.tfperf(max_regression="40%")
def test_tenfold(tf_profile):
    for x in tf_profile.steps(tf.data.Dataset.from_tensors(X).repeat()):
        model.step(x)
        time.sleep(0.005 * model.TIMES)  # the load under test: a step is slow

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
INI = "[pytest]\npythonpath = src\naddopts = -p tfperf -p no:cacheprovider\ntfperf_warmup = 2\ntfperf_steps = 8\ntfperf_trace_steps = 3\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("against")
    project = Project(
        folder,
        {
            "pytest.ini": INI,
            "src/model.py": MODEL.format(rounds=10, scale=1, times=1),
            "test_suite.py": SUITE,
        },
        {"src/model.py": MODEL.format(rounds=20, scale=1, times=10)},
        plugin=None,
    )
    before = picture(project.path)
    run = project.run(
        "-v", "--tfperf-budget=6", TF_CPP_MIN_LOG_LEVEL="2", CUDA_VISIBLE_DEVICES="-1"
    )
    assert picture(project.path) == before
    return run


TIME = ("", "step_time")
NO_ALARM = ("PASS", "IMPROVED", "INCONCLUSIVE")  # which of them is the machine's noise


def test_the_same_code_is_no_regression(run):
    for test in ("test_same", "test_loop", "test_keras"):
        verdict, message = run.checks(test)[TIME]
        assert verdict in NO_ALARM, (test, message)
        assert "pairs of turns" in message, test
        undecided = "INCONCLUSIVE" in [one for one, _ in run.checks(test).values()]  # any profile
        assert run.words(test) == ["INCONCLUSIVE" if undecided else "PASSED"], test


@pytest.mark.nightly  # a busy machine may leave it undecided
def test_twice_the_work_is_a_regression(run):
    verdict, message = run.checks("test_slower")[TIME]
    assert verdict == "REGRESSION", message
    assert " pairs of processes (" in message
    assert run.words("test_slower") == ["PERF"]


@pytest.mark.nightly  # likewise
def test_a_tenfold_time_is_a_regression_after_few_turns(run):
    verdict, message = run.checks("test_tenfold")[TIME]
    assert verdict == "REGRESSION", message
    assert "pairs of turns of the same code differ by up to 3 times" in message


def test_every_profile_of_a_test_has_turns(run):
    assert run.checks("test_loop")["again", "step_time"][0] in NO_ALARM


def test_limits_still_hold(run):
    assert run.checks("test_loop", "limit")["", "retraces"][0] == "PASS"


def test_structure_is_compared(run):
    found = {metric: verdict for (_, metric), (verdict, _) in run.checks("test_slower").items()}
    assert found["retraces"] == "PASS"
    assert found["graph_ops"] == "PASS"


def test_forms_without_times_are_compared_in_their_structure(run):
    for test in ("test_trace", "test_marked"):
        found = run.checks(test)
        assert found[TIME][0] == "INCONCLUSIVE", test
        assert "only tf_profile(step, data)" in found[TIME][1], test
        assert run.words(test) == ["INCONCLUSIVE"], test


@pytest.mark.nightly
def test_the_run_has_failed_for_the_regressions_alone(run):
    assert run.status == 1
    assert "2 failed, 5 passed" in run.text
