"""The process after a profile is what it was before: what it stores, wraps, watches and starts."""

import gc
import os
import sys
import threading
import warnings
from types import FunctionType, ModuleType

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

pytestmark = pytest.mark.imports("keras")
LIBRARIES = ("tensorflow", "keras", "jax", "numpy", "threading", "gc", "builtins")


def functions():
    """All functions and properties of modules and classes of the libraries, by their places."""
    found = {}
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and name.split(".")[0] in LIBRARIES:
            for key, value in list(vars(module).items()):
                if isinstance(value, type):
                    for part, one in list(vars(value).items()):
                        if isinstance(one, (FunctionType, property, classmethod, staticmethod)):
                            found[f"{value.__module__}.{value.__qualname__}.{part}"] = one
                elif isinstance(value, FunctionType):
                    found[f"{name}.{key}"] = value
    return found


def stored_graphs():
    """How many graphs TensorFlow stores of a new function."""
    tf.function(lambda x: x + 1.0)(tf.constant(1.0))
    return len(context.export_run_metadata().function_graphs)


def state():
    return {
        "graphs": stored_graphs(),
        "op callbacks": list(context.context().op_callbacks),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "trace and profile": (sys.gettrace(), sys.getprofile(), threading.gettrace()),
        "garbage collector": (gc.isenabled(), gc.get_threshold(), list(gc.callbacks)),
        "warnings": list(warnings.filters),
        "environment": {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"},
    }


@pytest.fixture
def as_before():
    """Compare the process with itself; the profiler can be started by the test that comes next."""
    wrapped, before = functions(), state()
    yield
    after, found = state(), functions()
    assert after == before
    changed = [place for place in wrapped.keys() & found if wrapped[place] is not found[place]]
    assert changed == []
    tf.profiler.experimental.start("")  # an empty folder: nothing is written
    tf.profiler.experimental.stop(save=False)


@tf.function
def multiply(x):
    return x @ x


DATA = [tf.ones((8, 8))] * 40


def model():
    made = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


X, Y = np.ones((64, 8), "float32"), np.ones((64, 1), "float32")


def test_after_a_profile_with_graphs(profile, as_before):
    assert profile(multiply, DATA).graph_ops > 0


def test_after_a_keras_fit(profile, as_before):
    assert profile.fit(model(), X, Y, batch_size=4, epochs=4, verbose=0).graph_ops > 0


def test_after_a_step_that_fails_in_any_window(profile, as_before):
    for last in (1, 4, 16, 22, 23):
        calls = iter(range(last))

        def step(x, calls=calls):
            if next(calls, None) is None:
                raise RuntimeError("the user's")
            return multiply(x)

        with pytest.raises(RuntimeError, match="the user's"):
            profile(step, DATA, name=f"fails after {last}")


def test_after_a_loop_of_the_user_s_own_that_ends_early(profile, as_before):
    with pytest.raises(RuntimeError, match="the user's"):
        for n, x in enumerate(profile.steps(DATA)):
            multiply(x)
            if n == 5:
                raise RuntimeError("the user's")


def test_graphs_that_the_user_collects_are_left_to_the_user(profile):
    tf.summary.trace_on(graph=True)
    try:
        found = profile(multiply, DATA)
        value = found.value("graph_ops")
        assert value.number is None
        assert "tf.summary.trace_on" in value.why
        assert stored_graphs() > 0
    finally:
        tf.summary.trace_off()
