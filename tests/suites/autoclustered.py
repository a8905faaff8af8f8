"""Steps under auto-clustering, in a process of their own: what their graphs show, and what XLA ran, as JSON."""

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from pytest_tfperf.compiler.step_calls import probed
from pytest_tfperf.compiler.step_graph import inspect_graph
from pytest_tfperf.facts.executions import find_xla_use, short_module
from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.metrics.graph_ops import graph_values
from pytest_tfperf.trace.xspace import read_trace
from pytest_tfperf.values import Unknown

X = tf.ones((8, 8)) * 0.01
VARIABLE = tf.Variable(X)


@tf.function(jit_compile=True)
def compiled(x):
    return tf.nn.relu(x @ x)


@tf.function
def block(x):
    for _ in range(2):
        x = tf.tanh(x @ x) + 1.0
    return x


def through_python(x):
    y = tf.py_function(lambda value: value, [x], tf.float32)
    y.set_shape((8, 8))
    return y


@tf.function
def plain(x):
    return block(x)


@tf.function
def split(x):
    """A result of the first cluster goes to Python, another straight to the second."""
    y = block(x)
    more = tf.exp(y)
    return block(through_python(y)) + more


@tf.function
def split_thrice(x):
    y = block(x)
    z = block(through_python(y)) + tf.exp(y)
    few = tf.reshape(tf.unique(tf.reshape(z, [-1]))[0][:1], [1, 1])
    return block(tf.nn.relu(z) + few)


@tf.function
def text(x):
    y = block(x)
    z = tf.strings.to_number(tf.strings.as_string(y))
    z.set_shape((8, 8))
    return block(z)


@tf.function
def merged(x):
    """A function that the user wants compiled is in the cluster of its neighbours."""
    return compiled(block(x)) + 1.0


@tf.function
def nested(x):
    return compiled(compiled(compiled(x)))


@tf.function
def scoped(x):
    with tf.xla.experimental.jit_scope():
        y = tf.sin(x) * 2
    y = through_python(y)
    with tf.xla.experimental.jit_scope():
        y = tf.sin(y)
    return tf.reverse(y, [0])


@tf.function
def train(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(block(VARIABLE @ x))
    VARIABLE.assign_sub(tape.gradient(loss, VARIABLE) * 0.01)
    return loss


@tf.function
def loop(x):
    y = block(x)
    for _ in tf.range(3):
        y = block(y)
    return y


@tf.function
def small(x):
    return x + 1.0


@tf.function
def drawn(x):
    return block(x + tf.random.uniform((8, 8)))


@tf.function(input_signature=[tf.TensorSpec((None, 8))])
def dynamic(x):
    return tf.tanh(tf.nn.relu(x * 2 + 1) @ VARIABLE)


def changing_shapes():
    sizes = iter(range(8, 1000))
    return lambda: dynamic(tf.ones((next(sizes), 8)))


def keras_fit():
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse", jit_compile=False)
    x, y = np.ones((8, 4), "f4"), np.ones((8, 1), "f4")
    return lambda: model.fit(x, y, batch_size=8, verbose=0)


FUNCTIONS = (plain, split, split_thrice, text, merged, nested, scoped, train, loop, small, drawn)
STEPS = {
    function.python_function.__name__: (lambda function=function: function(X))
    for function in FUNCTIONS
}
STEPS |= {"dynamic": changing_shapes(), "keras": keras_fit()}


def ran(step):
    """The auto-clusters that ran in two steps, by the names of their executables."""
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        for number in range(2):
            with tf.profiler.experimental.Trace("step", step_num=number, _r=1):
                step()
        tf.profiler.experimental.stop()
        trace = read_trace(next(Path(folder).rglob("*.xplane.pb")))
    names = find_xla_use(trace, find_steps(trace)).modules
    return sorted({short_module(name) for name in names if name.startswith("cluster_")})


def graph_of(step):
    with probed() as probe:
        step()
    return inspect_graph(probe).graph


def seen(step):
    for _ in range(2):
        step()
    clusters = ran(step)
    graph = graph_of(step)
    if isinstance(graph, Unknown):
        return {"why": graph}
    coverage = graph_values(graph, (), len(clusters))["xla_coverage"]
    return {
        "before": graph.before,
        "after": graph.after,
        "inside": graph.inside,
        "n_clusters": graph.n_clusters,
        "outside": [asdict(op) for op in graph.outside],
        "again": graph_of(step).inside,
        "ran": clusters,
        "coverage": coverage.number,
        "why": coverage.why,
    }


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps({name: seen(step) for name, step in STEPS.items()}))
