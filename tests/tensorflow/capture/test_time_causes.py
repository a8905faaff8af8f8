"""What takes the time of a step: the place, the share and the remedy of each cause, of real steps."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.full


def causes(profiled):
    return [row for row in profiled.tables["time_causes"].records() if row["metric"] == "step_time"]


@tf.function
def nested(x):
    total = tf.zeros(4)
    for _ in tf.range(30):
        for _ in tf.range(20):
            total += tf.sin(x)
    return total


def test_a_loop_of_the_graph_has_its_innermost_line_and_iterations(profile):
    first = causes(profile(nested, [tf.ones(4)] * 4))[0]
    assert re.match(r"the loop while at test_time_causes\.py:\d+ runs", first["where"])
    assert "(600 iterations or more a step)" in first["where"]
    assert first["share"] > 0.5


class PerRow(keras.layers.Layer):
    def call(self, rows):
        return tf.map_fn(tf.math.sigmoid, rows)


def test_a_loop_in_a_model_has_its_layer(profile):
    model = keras.Sequential([keras.Input((4,)), PerRow(name="each"), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    rows = np.ones((1200, 4), "float32")
    fitted = profile.fit(model, rows, rows[:, :1], batch_size=300, epochs=12, verbose=0)
    (loop,) = [one["where"] for one in causes(fitted) if one["part"] == "host_compute"]
    assert loop.startswith("the loop map of each")
    assert " at test_time_causes.py:" in loop
    assert "(300 iterations or more a step)" in loop


def first_causes(profiled):
    rows = profiled.tables["time_causes"].records()
    return [row for row in rows if row["metric"] == "first_step_time"]


def test_a_large_constant_of_a_graph_is_what_its_first_step_takes(profile):
    table = np.ones((3_000_000, 4), "float32")
    found = first_causes(
        profile(tf.function(lambda rows: tf.gather(table, rows)), [tf.ones(4, tf.int32)] * 4)
    )
    # Tracing copies the constant, and so does the start of the graph: which takes longer is the machine's.
    assert re.match("tracing at |TensorFlow starts the graph", found[0]["where"])
    assert (
        "45.8 MiB of constants in it, the largest float32[3000000,4] at test_time_causes.py:"
        in found[0]["where"]
    )
    assert "argument" in found[0]["try"]
    assert sum(row["share"] for row in found) > 0.5


def test_an_op_of_a_python_loop_is_counted_in_the_graph(profile):
    def unrolled(x):
        for _ in range(900):
            x = x @ x
        return x

    profiled = profile(tf.function(unrolled), [tf.eye(4)] * 4)
    found = first_causes(profiled)
    detail = profiled.value("graph_ops").detail
    assert re.search(r"900 MatMul at test_time_causes\.py:\d+", detail["where"])
    assert "tf.range" in detail["try"]
    assert any(re.search(r"900 MatMul at test_time_causes\.py:\d+", row["where"]) for row in found)
    assert all("tf.range" in row["try"] for row in found if "MatMul" in row["where"])


@pytest.mark.imports("jax")
def test_what_xla_computes_of_a_constant_alone_is_said_of_its_compilation(profile):
    import jax
    import jax.numpy as jnp

    table = jnp.asarray(np.random.default_rng(0).normal(size=(64, 64)).astype("float32"))
    step = jax.jit(lambda rows: rows @ jnp.sort(table, 1))
    found = first_causes(profile(step, [np.ones((8, 64), "float32")] * 4))
    where = " ".join(row["where"] for row in found)
    assert "which computes the sort of a constant f32[64,64]" in where


def test_the_updates_of_an_optimizer_are_no_loop_of_python(profile):
    model = keras.Sequential([keras.Input((8,)), *[keras.layers.Dense(8) for _ in range(25)]])
    model.compile("adam", "mse")
    rows = np.ones((64, 8), "float32")
    profiled = profile.fit(model, rows, rows, batch_size=16, epochs=10, verbose=0)
    value = profiled.value("graph_ops")
    assert value.number > 1000
    assert "try" not in value.detail
    assert "adam" not in value.detail["where"]


@pytest.mark.imports("jax")
def test_a_constant_of_jax_has_the_line_of_what_reads_it(profile):
    import jax
    import jax.numpy as jnp

    table = jnp.asarray(np.random.default_rng(0).random((300_000, 8), "float32"))
    step = jax.jit(lambda ids: (table[ids] * 2).sum())
    found = first_causes(profile(step, [np.ones(8, "int32")] * 4))
    named = [row for row in found if "constants" in row["where"]]
    assert named
    for row in named:
        assert re.search(r"f32\[300000,8\] at test_time_causes\.py:\d+", row["where"])
        assert "argument" in row["try"]
