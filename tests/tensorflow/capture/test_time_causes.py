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
