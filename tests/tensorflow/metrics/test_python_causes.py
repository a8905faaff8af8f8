"""What Python does in a step of many calls, and the remedy of that, on real Keras, TensorFlow and JAX."""

import gc
import re

import numpy as np
import pytest
import tensorflow as tf
from helpers.profilers import profiler as new_profiler

pytestmark = pytest.mark.full

HERE = "test_python_causes.py"
ROWS = np.ones((8, 4), np.float32)


@pytest.fixture
def profile():
    """A `tf_profile` of many warm-up steps: samples of their stacks tell lines and shares."""
    profiler = new_profiler({"warmup": 20, "steps": 12, "trace_steps": 6})
    yield profiler
    profiler.close()


@pytest.fixture(autouse=True)
def functions_of_jax_are_found():
    """Undo what the tests before froze: JAX's functions are found among the objects of `gc`."""
    gc.unfreeze()


def calls(found):
    """The cause of python_calls: its `where` and its `try`."""
    detail = found.value("python_calls").detail
    return detail["where"], detail["try"]


def causes(found, told):
    """`where` and `try` of the causes of step_time that tell it; which is largest is the machine's."""
    rows = [row for row in found.tables["time_causes"].records() if row["metric"] == "step_time"]
    chosen = [(row["where"], row["try"]) for row in rows if told in row["where"]]
    assert chosen, rows
    return chosen


@pytest.mark.full
@pytest.mark.imports("keras")
def test_small_batches_of_keras_are_to_be_larger(profile):
    import keras

    class Log(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            for number in range(600):
                self.note(number)

        def note(self, number):
            return number + 1

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    rows = np.ones((512, 4), np.float32)
    arguments = {"batch_size": 8, "epochs": 5, "verbose": 0}
    found = profile.fit(model, rows, rows[:, :1], **arguments, name="alone")
    overhead = found.value("host_overhead").detail
    for where, remedy in (calls(found), (overhead["where"], overhead["try"])):
        assert "Keras calls its compiled step for each batch" in where
        assert "steps_per_execution" in remedy
        assert "callback" not in remedy
    found = profile.fit(model, rows, rows[:, :1], **arguments, callbacks=[Log()], name="logging")
    where, remedy = calls(found)
    assert f"note at {HERE}:" in where
    assert "steps_per_execution" in remedy
    assert "run the callback less often" in remedy


def test_a_loop_of_functions_is_told_from_one_function_and_from_ops(profile):
    x = tf.ones((8, 4))
    inner = tf.function(lambda x: x + 1)

    def many(x):
        for _ in range(40):
            x = inner(x)
        return x

    def eagerly(x):
        for _ in range(40):
            x = x * 2
        return x

    for step, told, remedy in (
        (many, "calls tf.functions 40 times a step", "loop inside one tf.function"),
        (lambda x: inner(x), "calls of compiled functions", "larger batches"),
        (eagerly, "40 ops run eagerly", "into one tf.function"),
    ):
        found = profile(step, [x] * 4, name=remedy)
        assert told in calls(found)[0], told
        assert remedy in calls(found)[1], told


@pytest.mark.imports("jax")
def test_trees_that_jax_takes_apart_in_python_are_named_by_their_functions(profile):
    """patrick-kidger/equinox#928: the name of the function does not tell, JAX's registry does."""
    import jax
    import jax.numpy as jnp

    class Node:
        def __init__(self, *parts):
            self.parts = parts

    def opened(node):
        return node.parts, None

    def feature(number):
        return number / 2

    jax.tree_util.register_pytree_node(Node, opened, lambda _, parts: Node(*parts))
    tree = Node(*[Node(jnp.eye(4)) for _ in range(300)])
    mean = jax.jit(lambda tree, x: x.mean() + sum(one.sum() for one in jax.tree.leaves(tree)))
    for warmup in (2, 200):  # with too few samples of the stack, and with many
        found = profile(lambda x: mean(tree, x), [ROWS] * 4, name=f"tree {warmup}", warmup=warmup)
        for where, remedy in (calls(found), *causes(found, "JAX takes a pytree apart")):
            assert f"opened at {HERE}:" in where
            assert "take the pytree apart once" in remedy
    sums = jax.jit(jnp.sum)
    where, remedy = calls(
        profile(lambda x: sums(np.array([feature(one) for one in x.flat])), [ROWS] * 4, name="own")
    )
    assert f"feature at {HERE}:" in where
    assert "run " in remedy
    assert "pytree" not in remedy


@pytest.mark.full
@pytest.mark.imports("jax")
def test_two_causes_in_python_have_a_remedy_each(profile):
    import jax
    import jax.numpy as jnp

    halved = [jnp.ones((4, 4)) for _ in range(150)]
    mean = jax.jit(jnp.mean)

    def step(rows):
        mean(jnp.array(rows))
        return [jnp.minimum(one, 1.0) * 0.5 for one in halved]

    rows = [[float(number) for number in range(100)] for _ in range(100)]
    found = profile(step, [rows] * 4, unpack=False, warmup=60)
    for told, remedy in (("array_constructors", "np.asarray"), ("run eagerly", "jax.jit")):
        for _, text in causes(found, told):
            assert remedy in text, told


@pytest.mark.imports("jax")
def test_ops_outside_jit_have_their_line_and_the_remedy_of_what_they_are_for(profile):
    import jax
    import jax.numpy as jnp

    tanh = jax.jit(lambda x: jnp.tanh(x).mean(1))
    x = np.ones((80, 4), np.float32)
    numbers = [[float(number) for number in range(100)] for _ in range(100)]

    def reads(x):
        rows = tanh(x)
        return [float(rows[at]) for at in range(80)]

    def updates(x):
        rows = tanh(x)
        return [rows[at : at + 2] * 2 for at in range(60)]

    for step, data, told, remedy in (
        (reads, x, "dynamic_slice ×80", "np.asarray(x)"),
        (updates, x, "multiply ×60", "move them into the jax.jit function"),
        (lambda rows: tanh(jnp.array(rows)), numbers, "convert_element_type", "one NumPy array"),
    ):
        found = profile(step, [data] * 4, unpack=False, name=remedy, warmup=60)
        detail = found.value("eager_ops").detail
        assert told in detail["where"], remedy
        assert f", called at {HERE}:" in detail["where"], remedy
        assert remedy in detail["try"].partition(";")[0]
        if step is reads:
            copies = found.value("host_device_copies").detail
            assert re.search(rf"read by Python at {HERE}:\d+ ×80", copies["where"])
            assert "move the ops" in copies["try"]
