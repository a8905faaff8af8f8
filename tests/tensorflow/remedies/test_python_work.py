"""A speed-up from work of Python that a traced function does once is named, and never the best."""

import cProfile
import logging
import math
import random
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.errors import UnknownMetric
from pytest_tfperf.frameworks.framework import TENSORFLOW
from pytest_tfperf.remedies import step as of_step
from pytest_tfperf.remedies.python_work import work_of
from pytest_tfperf.remedies.remedy import Call
from pytest_tfperf.remedies.trial import try_remedies
from pytest_tfperf.results import Profile

X = tf.ones((4, 4))
SEEN = {"steps": 0}
LOG = logging.getLogger("tfperf.test")


def work(step):
    return work_of(step, lambda: [step() for _ in range(2)])


def test_calls_with_an_effect_are_found_with_their_lines_and_those_that_compute_are_not(tmp_path):
    def load():
        with (tmp_path / "x.npy").open("rb") as file:
            return np.load(file)

    np.save(tmp_path / "x.npy", np.zeros(3))

    def plain():
        scale = math.sqrt(len([1, 2])) * np.mean(np.ones(3))
        kept = []
        for one in (1.0, 2.0):
            kept.append(tf.tanh(X @ X * one * scale))
        return sum(kept), {"a": f"{scale:.3g}".upper()}

    for step, wanted in (
        (plain, set()),
        (tf.function(plain), set()),
        (lambda: (time.sleep(0.0), tf.tanh(X)), {"time.sleep"}),
        (lambda: print("a loss"), {"print"}),  # noqa: T201
        (lambda: LOG.warning("a loss"), {"io.write"}),
        (load, {"io.open", "io.read"}),
        (lambda: X * random.random(), {"random.random"}),
        (lambda: X * time.time(), {"time.time"}),
    ):
        found = {one.partition(" at ")[0] for one in work(step)}
        assert wanted <= found if wanted else not found, (step, found)
    assert any("test_python_work.py:" in one for one in work(lambda: time.sleep(0.0)))


def test_names_that_a_step_sets_are_found():
    counts, array, losses = {"n": 0}, np.zeros(2), []

    class Model:
        steps = 0

        def __init__(self):
            self.steps = 0

        def train(self):
            self.steps += 1
            return tf.tanh(X)

    def step():
        counts["n"] += 1
        array[:] += 1
        losses.append(3)

    assert work(step) == {
        "the change of counts['n']",
        "the change of array",
        "the change of losses",
    }
    assert work(Model().train) == {"the change of self.steps"}


def test_random_numbers_of_numpy_are_found_by_their_states():
    numbers = np.random.default_rng(0)
    assert work(lambda: X * numbers.normal()) == {"the change of numbers"}
    assert work(lambda: np.random.permutation(3)) == {"the change of the state of np.random"}  # noqa: NPY002


def test_arrays_that_a_step_replaces_are_found():
    state = {"tensor": X, "other": X}

    def step():
        state["tensor"] = state["tensor"] + 1

    assert work(step) == {"the change of state['tensor']"}
    assert work(lambda: state["tensor"] + 1) == frozenset()


def test_a_profiler_of_others_is_put_back():
    def other(*_):
        return None

    sys.setprofile(other)
    try:
        work(lambda: None)
        assert sys.getprofile() is other
    finally:
        sys.setprofile(None)
    with cProfile.Profile() as profiler:
        work(lambda: None)
        sorted([2, 1])
    assert any("sorted" in str(entry.code) for entry in profiler.getstats())


def tried(step, remedies):
    call = Call(step=step, profile=Profile(name="", metrics={}), framework=TENSORFLOW)
    found = try_remedies(call, 20.0, remedies=remedies)
    return found, {one.remedy: one for one in found}


@pytest.mark.full
def test_a_wait_that_a_function_leaves_out_is_no_speedup():
    def step():
        time.sleep(0.01)
        SEEN["steps"] += 1
        return tf.tanh(X)

    remedies, found = tried(step, [of_step.OneFunction()])
    one = found["@tf.function"]
    assert one.outputs == "same"
    assert one.speedup.low > 1
    assert "time.sleep at test_python_work.py:" in one.dropped
    assert "the change of SEEN['steps']" in one.dropped
    assert not one.helps
    with pytest.raises(UnknownMetric):
        _ = remedies.best
    assert "leaves out what Python does in each step: time.sleep at" in str(remedies)


@pytest.mark.nightly
def test_random_numbers_that_are_drawn_once_are_other_outputs():
    numbers = {
        np.random.default_rng().normal: "step 2: output",  # its state is put back
        random.SystemRandom().random: "the same in each run",  # which has none
    }
    for number, outputs in numbers.items():
        remedies, found = tried(lambda: X * number(), [of_step.OneFunction()])  # noqa: B023
        assert found["@tf.function"].outputs.startswith(outputs)
        assert not found["@tf.function"].helps
        assert "write:" not in str(remedies)

    def draws():
        return tf.random.normal(())

    assert tried(draws, [of_step.OneFunction()])[1]["@tf.function"].outputs == "random"
