"""`--tfperf-try` and `tf_profile.try_remedies`: what a user sees of remedies that were tried."""

import json

import pytest
from helpers.paths import ROOT

from pytest_tfperf.remedies import process, trial

SLOW_INPUT = """
import time
import numpy as np

def sleep(x):
    time.sleep(0.01)
    return np.float32(x)

def load(x):
    return tf.ensure_shape(tf.numpy_function(sleep, [x], tf.float32), [])

data = tf.data.Dataset.range(40).map(load).batch(2)

@tf.function
def step(x):
    return tf.reduce_sum(x)

@pytest.mark.tfperf(max_input_bound="5%")
def test_waits(tf_profile):
    tf_profile(step, data, warmup=2, steps=5, trace_steps=5)

def test_without_limits(tf_profile):
    tf_profile(lambda: step(tf.ones(3)), warmup=2, steps=5, trace_steps=5)
"""


TWO_REMEDIES = """
from pytest_tfperf.remedies import input, process, trial

trial.REMEDIES = input.NoInput(), input.Parallel()
process.REMEDIES = ()
"""


@pytest.mark.full
def test_a_broken_limit_shows_what_remedies_gave_and_stays_broken(suite, processes, monkeypatch):
    import jsonschema

    for module in (trial, process):  # the suite changes them here too
        monkeypatch.setattr(module, "REMEDIES", module.REMEDIES)
    suite.write(SLOW_INPUT + TWO_REMEDIES)
    result = suite("--tfperf-try", "--tfperf-report=run.json", "--tfperf-report=run.md")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*input_bound is *, above the limit of 5 %*",
            "  tried here, *",
            "    faster * step * input * outputs * remedy",
            "*x* same *num_parallel_calls=tf.data.AUTOTUNE*",
        ]
    )
    run = json.loads((suite.path / "run.json").read_text())
    schema = json.loads((ROOT / "docs" / "run.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(run)
    waits, other = run["tests"]
    table = waits["profiles"][0]["tables"]["remedies"]
    keys = [column["key"] for column in table["columns"]]
    rows = {row[0]: dict(zip(keys, row, strict=True)) for row in table["rows"]}
    assert rows["no input at all"]["is_bound"] is True
    parallel = rows["num_parallel_calls=tf.data.AUTOTUNE"]
    assert parallel["outputs"] == "same"
    written = ".map(load, num_parallel_calls=tf.data.AUTOTUNE)"
    assert parallel["write"] == f"test_suite.py:18  {written}"
    assert "remedies" not in other["profiles"][0]["tables"]
    page = (suite.path / "run.md").read_text()
    assert "## Remedies that were tried" in page
    assert page.count("tried here") == 0  # the table stands once, not in the message too


@pytest.mark.nightly
def test_what_no_time_was_left_for_is_named_under_the_message(suite, processes):
    suite.write(SLOW_INPUT)
    result = suite("--tfperf-try", "-o", "tfperf_try_seconds=0.01", "-k", "waits")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["  tried here, *", "*no time was left*"])


@pytest.mark.nightly
def test_every_step_is_tried_on_request_and_in_the_reports(suite, processes):
    suite.write(SLOW_INPUT)
    suite("--tfperf-try-all", "-k", "without", "--tfperf-report=run.json").assert_outcomes(passed=1)
    [test] = json.loads((suite.path / "run.json").read_text())["tests"]
    rows = test["profiles"][0]["tables"]["remedies"]["rows"]
    assert {"@tf.function", "jit_compile=True"} <= {row[0] for row in rows}


@pytest.mark.nightly
def test_a_test_may_ask_what_is_left_on_the_table(suite, processes):
    suite.gives(
        SLOW_INPUT
        + """
def test_asks(tf_profile):
    profile = tf_profile(step, data, warmup=2, steps=5, trace_steps=5)
    remedies = tf_profile.try_remedies(step, data)
    assert tf_profile.profile.tables["remedies"].records() == remedies.records()
    assert list(tf_profile.profiles) == [""]
    assert remedies.best.outputs == "same"
    assert remedies.best.speedup.low > 0

test_waits = test_without_limits = None
""",
        passed=1,
    )


CHANGING_SIZES = """
import jax
import jax.numpy as jnp
import numpy as np

count, weights = [0], jnp.ones((8, 8))

@jax.jit
def summed(x):
    return jnp.tanh(x @ weights).sum()

def step():
    count[0] += 1
    return summed(np.ones((997 * count[0] % 4093 + 1, 8), "float32"))

@pytest.mark.tfperf(max_xla_compiles=0)
def test_sizes(tf_profile):
    tf_profile(step, warmup=2, steps=5, trace_steps=5)
    assert count == [6]  # as many as the profile has run: those of remedies are put back
"""


@pytest.mark.nightly
@pytest.mark.imports("jax")
def test_sizes_that_recompile_are_padded_as_the_profile_asks(suite, processes):
    suite.write(CHANGING_SIZES)
    result = suite("--tfperf-try", "--tfperf-report=run.json")
    result.assert_outcomes(failed=1)
    [test] = json.loads((suite.path / "run.json").read_text())["tests"]
    table = test["profiles"][0]["tables"]["remedies"]
    keys = [column["key"] for column in table["columns"]]
    rows = {row[0]: dict(zip(keys, row, strict=True)) for row in table["rows"]}
    padded = rows["sizes padded to powers of two"]
    assert padded["outputs"] == "same" or "no time" in padded["why"]
    assert padded["write"].endswith("pad axis 0 of x to powers of two") or padded["why"]


@pytest.mark.nightly
def test_loops_of_keras_return_what_remedies_gave_on_request(suite, processes):
    suite.gives(
        """
import keras
import numpy as np
from pytest_tfperf import CaptureError

def test_asks(tf_profile):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    data = tf.data.Dataset.from_tensor_slices((np.zeros((40, 4)), np.zeros((40, 2)))).batch(4)
    remedies = tf_profile.evaluate(model, data, try_remedies=True)
    assert tf_profile.profile.tables["remedies"].records() == remedies.records()
    assert list(tf_profile.profiles) == [""]
    with pytest.raises(CaptureError, match="they are tried of"):
        tf_profile.predict(model, np.zeros((40, 4)), try_remedies=True)
""",
        passed=1,
    )
