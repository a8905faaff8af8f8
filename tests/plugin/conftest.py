"""pytest runs inside pytest: TensorFlow and this package are loaded once, by the outer one, and used by all inner ones."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import pytest
import tensorflow as tf

import pytest_tfperf.plugin.conclude
import pytest_tfperf.plugin.fixture

LOADED = (keras, tf, pytest_tfperf)

PRELUDE = """
import numpy as np
import pytest
import tensorflow as tf

DATA = [tf.ones((8, 8))] * 4
STEP_ARGUMENTS = dict(warmup=2, steps=4, trace_steps=3)
"""


@pytest.fixture
def suite(pytester, monkeypatch):
    """Write a test file with the usual imports, then run pytest on it."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("CI", raising=False)

    def write(body, name="test_suite"):
        pytester.makepyfile(**{name: PRELUDE + body})

    def run(*arguments):
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-W", "ignore", *arguments)

    def gives(body, *lines, **outcomes):
        """Tests of this body have these outcomes, and lines like these are among those printed, in this order."""
        write(body)
        result = run()
        result.assert_outcomes(**outcomes)
        result.stdout.fnmatch_lines(lines)
        return result

    run.write, run.gives = write, gives
    run.path = pytester.path
    return run
