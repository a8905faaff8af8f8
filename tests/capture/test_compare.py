"""`tf_profile.compare`: variants of a step, from the user's call to ratios and profiles."""

from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.errors import CaptureError

X = tf.random.stateless_normal((64, 64), [1, 2])
STEP = tf.function(lambda: tf.nn.relu(X @ X) + 1.0)
COMPILED = tf.function(lambda: tf.nn.relu(X @ X) + 1.0, jit_compile=True)


@pytest.fixture
def brief(profile):
    """A profiler whose turns take two seconds in all."""
    settings = profile._profiles.settings
    profiler = type(profile)(replace(settings, plan=replace(settings.plan, max_seconds=2)))
    yield profiler
    profiler.close()


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


def test_variants_that_are_meant_to_differ(brief):
    found = brief.compare({"plain": STEP, "half": lambda: STEP() * 0.5}, check_outputs=False)
    assert found.step_time("half") > 0


def test_variants_that_train_the_same_model_are_refused(profile):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((4, 3), "float32"), np.ones((4, 1), "float32")
    with pytest.raises(CaptureError, match="both train"):
        profile.compare({"a": lambda: model.train_on_batch(x, y), "b": lambda: model.train_on_batch(x, y)})


def test_a_second_comparison_of_the_same_variants_has_a_name(brief):
    steps = {"plain": STEP, "again": lambda: STEP()}
    brief.compare(steps)
    with pytest.raises(CaptureError, match="has a profile named 'plain' already"):
        brief.compare(steps)
    brief.compare(steps, name="later")
    assert set(brief.profiles) == {"plain", "again", "later plain", "later again"}


def test_restore_puts_the_variables_back(brief):
    one, other = tf.Variable(1.0), tf.Variable(1.0)
    brief.compare({"a": lambda: one.assign_add(1.0), "b": lambda: other.assign_add(1.0)}, restore=[one, other])
    assert (one.numpy(), other.numpy()) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([STEP, COMPILED], TypeError, "dict of steps by name"),
        ({"plain": STEP}, CaptureError, "two or more variants"),
        ({"plain": STEP, "xla": 3}, TypeError, "'xla'"),
        ({"plain": STEP, "xla": lambda x: x}, CaptureError, "'xla'"),
    ],
)
def test_what_is_no_variants(profile, given, error, message):
    with pytest.raises(error, match=message):
        profile.compare(given)


def test_data_is_refused_with_what_to_do(profile):
    with pytest.raises(CaptureError, match="bind what the step needs"):
        profile.compare({"plain": STEP, "xla": COMPILED}, [1, 2])
