"""An entry of a baseline is the same in whatever order the tests of a process run, and alone."""

import os
import subprocess
import sys

import pytest

from pytest_tfperf.baseline.store import read_structure

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("processes")]

TENSORFLOW = """
import numpy as np
import pytest
import tensorflow as tf

FEW = {"warmup": 2, "steps": 4, "trace_steps": 3}
DATA = [np.ones((16, 8), "float32")] * 4
w = tf.Variable(tf.ones((8, 8)))

@tf.function
def plain(x):
    return tf.reduce_sum(tf.nn.relu(tf.matmul(x, w)))

@tf.function(jit_compile=True)
def compiled(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w)))
    w.assign_sub(0.01 * tape.gradient(loss, w))
    return loss

def test_plain(tf_profile):
    tf_profile(plain, DATA, **FEW)

def test_compiled(tf_profile):
    tf_profile(compiled, DATA, **FEW)

@pytest.mark.tfperf(**FEW)
def test_fit(tf_profile):
    import keras

    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    model.compile("adam", "mse", jit_compile=True)
    x, y = np.ones((320, 8), "float32"), np.ones((320, 1), "float32")
    tf_profile.fit(model, x, y, batch_size=16, epochs=20, verbose=0)
"""
JAX = """
import jax
import jax.numpy as jnp

FEW = {"warmup": 2, "steps": 4, "trace_steps": 3}
gradient = jax.jit(jax.grad(lambda w, x: jnp.mean(jnp.tanh(x @ w) ** 2)))

def test_jax(tf_profile):
    state = [jnp.ones((8, 8))]

    def step(x):
        state[0] = state[0] - 0.1 * gradient(state[0], x)
        return state[0]

    tf_profile(step, [jnp.ones((16, 8))] * 4, **FEW)
"""
NAMES = ("test_plain", "test_compiled", "test_fit", "test_jax")


@pytest.mark.nightly
@pytest.mark.imports("jax", "keras")
def test_entries_are_the_same_in_two_orders_and_alone(tmp_path):
    (tmp_path / "test_tensorflow.py").write_text(TENSORFLOW)
    (tmp_path / "test_jax_alone.py").write_text(JAX)
    alone = {name: recorded(tmp_path, name)[name] for name in NAMES}
    assert all(entry["program"]["retraces"] == 0 for entry in alone.values())
    assert {name for name, entry in alone.items() if "in_xla" in entry} == {
        "test_compiled",
        "test_fit",
    }
    for order in (NAMES, NAMES[::-1]):
        together = recorded(tmp_path, *order)
        for name in NAMES:
            assert together[name] == alone[name], (name, order)


def recorded(folder, *names):
    """The entries that a process records which runs these tests in this order."""
    files = {
        name: "test_jax_alone.py" if name == "test_jax" else "test_tensorflow.py" for name in names
    }
    into = folder / "-".join(names)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "pytest_tfperf.plugin.hooks"),
            *(f"{files[name]}::{name}" for name in names),
            *("--tfperf-update", f"--tfperf-baseline-dir={into}"),
        ],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    entries = {}
    for path in into.glob("*.json"):
        entries |= read_structure(path)
    assert set(entries) == set(names)
    for entry in entries.values():
        entry["setting"].pop("commit")
        entry.pop("counted_steps")
    return entries
