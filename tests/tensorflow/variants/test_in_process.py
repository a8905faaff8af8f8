"""`tf_profile.compare`: variants of a step, from the user's call to ratios and profiles."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from helpers.profilers import profiler as new_profiler

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks import tensorflow
from pytest_tfperf.frameworks.tensorflow import TensorFlow
from pytest_tfperf.turns import pytest_child
from pytest_tfperf.variants import turns
from pytest_tfperf.variants.comparison import Comparison
from pytest_tfperf.variants.outputs import (
    Tolerance,
    check_outputs,
    leaves_from_json,
    leaves_to_json,
)

X = tf.random.stateless_normal((64, 64), [1, 2])
STEP = tf.function(lambda: tf.nn.relu(X @ X) + 1.0)
COMPILED = tf.function(lambda: tf.nn.relu(X @ X) + 1.0, jit_compile=True)


@pytest.fixture
def brief(profile, monkeypatch):
    """A profiler with eight rounds of turns, and no more."""
    monkeypatch.setattr(turns, "SECONDS", 0.1)
    return profile


def test_variants_are_profiled_and_take_turns(brief):
    found = brief.compare({"plain": STEP, "xla": COMPILED})
    assert found.variants == ("plain", "xla")
    assert found.profiles["plain"].xla_clusters == 0
    assert found.profiles["xla"].xla_clusters == 1
    assert set(brief.profiles) == {"plain", "xla"}
    ratio = found.speedup("xla", over="plain")
    assert 0 < ratio.low <= ratio.ratio <= ratio.high
    assert ratio.ratio == pytest.approx(1 / found.speedup("plain", over="xla").ratio)
    assert brief.profiles["plain"].tables["comparison"] == found.table()


def test_variants_that_return_different_things(profile):
    with pytest.raises(AssertionError, match=r"(?s)xla.*output.*rtol="):
        profile.compare({"plain": STEP, "xla": lambda: STEP() * 1.01})


@pytest.mark.full
def test_a_second_comparison_of_the_same_variants_has_a_name(brief):
    steps = {"plain": STEP, "again": lambda: STEP()}
    brief.compare(steps)
    with pytest.raises(CaptureError, match="has a profile named 'plain' already"):
        brief.compare(steps)
    brief.compare(steps, name="later")
    assert set(brief.profiles) == {"plain", "again", "later plain", "later again"}


def test_variants_may_be_meant_to_differ_and_restore_puts_the_variables_back(brief):
    one, other = tf.Variable(1.0), tf.Variable(1.0)
    found = brief.compare(
        {"a": lambda: one.assign_add(1.0), "b": lambda: other.assign_add(2.0)},
        check_outputs=False,
        restore=[one, other],
    )
    assert found.step_time("b") > 0
    assert (one.numpy(), other.numpy()) == (1.0, 1.0)


def test_what_is_no_variants(profile):
    for given, error, message in (
        ([STEP, COMPILED], TypeError, "dict of steps by name"),
        ({"plain": STEP}, CaptureError, "two or more variants"),
        ({"plain": STEP, "xla": 3}, TypeError, "'xla'"),
        ({"plain": STEP, "xla": lambda x: x}, CaptureError, "'xla'"),
    ):
        with pytest.raises(error, match=message):
            profile.compare(given)


def test_with_data_a_process_is_needed_that_can_start_others(profile, monkeypatch):
    monkeypatch.setattr(pytest_child, "can_start_processes", lambda: False)
    with pytest.raises(CaptureError, match="need SIGSTOP, which this platform lacks"):
        profile.compare({"plain": tf.abs, "again": tf.abs}, [X])


def test_disabled_each_variant_runs_once(profile):
    profiler = new_profiler(disable=True)
    calls = []
    steps = {"a": lambda x, y: calls.append((x, y)), "b": lambda pair: calls.append(pair)}
    with pytest.raises(pytest.skip.Exception):
        profiler.compare(steps, {"a": [(1, 2)], "b": [(3, 4), (5, 6)]})
    assert calls == [(1, 2), (3, 4)]
    profiler.close()


def test_whether_this_process_takes_all_memory_of_a_gpu(monkeypatch):
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
    assert not TensorFlow().why_gpus_are_full() or tf.config.list_physical_devices("GPU")
    for grows, logical, variable, whole in (
        (False, None, None, True),
        (True, None, None, False),
        (False, ["1 GiB"], None, False),
        (False, None, "true", False),
        (False, None, "0", True),
    ):
        config = SimpleNamespace(
            get_visible_devices=lambda kind: [kind],
            get_logical_device_configuration=lambda _, logical=logical: logical,
            experimental=SimpleNamespace(get_memory_growth=lambda _, grows=grows: grows),
        )
        given = SimpleNamespace(config=config)
        with monkeypatch.context() as patch:
            patch.setattr(tensorflow, "load_tensorflow", lambda tf=given: tf)
            if variable is not None:
                patch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", variable)
            found = bool(TensorFlow().why_gpus_are_full())
        assert found is whole, (grows, logical, variable)


def test_a_variant_from_another_process_has_its_limits_and_cannot_be_exported(profile):
    measured = profile(STEP)
    asked = []

    def compare_in_processes(given):
        asked.append(given)
        profiles = {
            variant: replace(measured, name=name) for variant, name in given.profiles.items()
        }
        return Comparison(
            turns={"a": (2.0,) * 8, "b": (1.0,) * 8}, profiles=profiles, notes=("in processes",)
        )

    test = profile._test
    test.compare = compare_in_processes
    found = profile.compare(
        {"a": tf.abs, "b": tf.abs}, {"a": [X], "b": [X, X]}, name="two", limits={"max_retraces": 3}
    )
    assert found.speedup("b").low == pytest.approx(2)
    assert list(profile.profiles) == ["", "two a", "two b"]
    assert test.results["two b"][1][0].argument == "max_retraces=3"
    assert profile.profiles["two a"].tables["comparison"] == found.table()
    assert asked[0].tolerance is None
    with pytest.raises(CaptureError, match="'two b' was made in a process of its own"):
        profile.export("step.json")
    with pytest.raises(CaptureError, match="has a profile named 'two a' already"):
        profile.compare({"a": tf.abs, "b": tf.abs}, [X], name="two")
    assert len(asked) == 1


def test_what_a_variant_measures_in_its_process(profile):
    given, step = [], tf.function(lambda x, y: x + y)
    state = tf.Variable(1.0)

    def other(x, y):
        state.assign_add(1.0)
        return x - y

    def compare_in_processes(asked):
        given.append([asked.measure(variant) for variant in ("b", "a")])
        raise CaptureError("enough")

    profile._test.compare = compare_in_processes
    with pytest.raises(CaptureError, match="enough"):
        profile.compare(
            {"a": step, "b": other}, [(X, X), (X, 2 * X)], check_outputs=True, restore=state
        )
    (b, b_leaves), (a, a_leaves) = given[0]
    assert (b.name, a.name) == ("b", "a")
    assert a.step_time > 0
    np.testing.assert_array_equal(a_leaves["output"], 2 * X)
    np.testing.assert_array_equal(b_leaves["output"], 0 * X)
    assert state.numpy() == 1.0


def test_what_a_step_returns_goes_from_process_to_process():
    for leaf, same in (
        (None, None),
        (True, True),
        (3, 3),
        (0.25, 0.25),
        ("text", "text"),
        (b"bytes", b"bytes"),
        (1 + 2j, 1 + 2j),
        (np.float32([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (tf.constant([1.5], tf.bfloat16), [1.5]),
        (np.array(["a", "b"]), [b"a", b"b"]),
        (tf.zeros((0, 3)), np.zeros((0, 3))),
        (float("inf"), float("inf")),
    ):
        there = leaves_from_json(json.loads(json.dumps(leaves_to_json({"output": leaf}))))["output"]
        values = there.numpy() if hasattr(there, "numpy") else there
        assert there is same or np.array_equal(values, same), leaf
        if hasattr(leaf, "dtype") and leaf.dtype != "<U1":
            assert there.dtype == leaf.dtype, leaf


def test_of_what_is_no_value_the_type_goes_to_the_other_process():
    there = leaves_from_json(leaves_to_json({"output": object(), "other": {1}}))
    assert [type(leaf).__name__ for leaf in there.values()] == ["object", "set"]
    again = leaves_from_json(leaves_to_json({"output": object(), "other": {1}}))
    notes = check_outputs({"first": there, "second": again}, Tolerance())
    assert notes[0] == "outputs of type object, set were not compared"
