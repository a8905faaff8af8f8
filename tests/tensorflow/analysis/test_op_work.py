"""The ops of real steps: their FLOPs add up, their places are the user's, and look-ups are known."""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.analysis.xla.op_work import ops_of
from pytest_tfperf.capture.inspection import StepInspection
from pytest_tfperf.compiler.probe import Probe
from pytest_tfperf.compiler.step_calls import calls_recorded
from pytest_tfperf.hlo.cost import module_costs
from pytest_tfperf.hlo.decode import decode_module
from pytest_tfperf.values import Unknown

pytestmark = pytest.mark.imports("keras", "jax")

X, W, IDS = tf.ones((8, 20)), tf.Variable(tf.ones((20, 20))), tf.constant([3, 1, 0, 2])


@pytest.fixture(scope="module", autouse=True)
def kernels():
    tf.function(lambda x: x + 1, jit_compile=True)(1.0)  # as in every profile before lowering


def of_tensorflow(step):
    """FLOPs and ops of a step."""
    step()
    with calls_recorded() as calls:
        step()
        calls.end_step(1)
    inspection = StepInspection(calls, Probe(), {"batch": None}, 60, False)
    lowered = inspection.lowered
    assert not isinstance(lowered, Unknown), lowered.why
    programs = [(module_costs(decode_module(raw, "step")), runs) for raw, runs in lowered]
    return sum(costs.flops * runs for costs, runs in programs), ops_of(programs, inspection.places)


def of_call(function):
    step = tf.function(function)
    return of_tensorflow(lambda: step(IDS))


def of_jax(function, *args):
    """FLOPs and ops of one call."""
    proto = jax.jit(function).lower(*args).compiler_ir("hlo").as_serialized_hlo_module_proto()
    costs = module_costs(decode_module(proto, "step"))
    return costs.flops, ops_of([(costs, 1.0)], lambda names: {})


def looped(x):
    for _ in tf.range(5):
        x = x @ W
    return tf.cond(tf.reduce_sum(x) > 0, lambda: x @ W, lambda: tf.tanh(x))


def block(x):
    return tf.cast(tf.cast(x @ W, tf.float64) * 2.0, tf.float32)


def scanned(w, x):
    rows, _ = jax.lax.scan(lambda row, _: (jnp.tanh(row @ w), None), x, length=7)
    return jax.lax.cond(rows.sum() > 0, lambda: rows @ w, lambda: rows).sum()


def test_the_flops_of_the_ops_add_up_to_those_of_the_step_also_in_loops_and_branches():
    layer = keras.layers.LSTM(3)

    @tf.function
    def recurrent(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x))
        return tape.gradient(loss, layer.trainable_variables)

    step = tf.function(looped)
    w, x = jnp.ones((4, 4)), jnp.ones((3, 4))
    found = [
        of_tensorflow(lambda: step(X)),
        of_tensorflow(lambda: recurrent(tf.ones((2, 6, 5)))),
        of_jax(scanned, w, x),
        of_jax(jax.grad(scanned), w, x),
    ]
    for flops, ops in found:
        assert sum(op.work.flops for op in ops) == flops > 0


def test_an_op_has_the_line_and_the_function_or_layer_of_the_user():
    layer = keras.layers.Dense(3, name="wide")
    line = block.__code__.co_firstlineno + 1
    step = tf.function(lambda x: layer(block(block(x))))
    ops = of_tensorflow(lambda: step(X))[1]
    seen = {(op.op_type, op.dtype): (op.key, op.n_ops, op.place) for op in ops}
    of_block = ("test_op_work.py:block", 2, f"at test_op_work.py:{line}")
    assert seen["Mul", "float64"] == seen["Cast", "float64"] == of_block
    assert ("MatMul", "wide") in {(op.op_type, op.key) for op in ops}


class Embedded(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.table = self.add_weight((20, 6))

    def call(self, ids):
        return keras.ops.matmul(keras.ops.one_hot(ids, 20), self.table)


def looks_up(found):
    return [op.looked_up / op.work.flops for op in found[1] if op.work.matmul_flops]


def test_only_products_that_sum_over_one_hot_rows_are_look_ups():
    layer, square = Embedded(), tf.Variable(tf.ones((4, 4)))
    lookups = [
        lambda ids: tf.one_hot(ids, 20) @ W,
        lambda ids: tf.einsum("vd,bv->bd", W, tf.one_hot(ids, 20)),
        lambda ids: tf.tensordot(tf.one_hot(tf.reshape(ids, (2, 2)), 20), W, 1),
        layer,
    ]
    others = [
        lambda ids: tf.one_hot(ids, 20, axis=0) @ square,  # adds rows up
        lambda ids: tf.eye(20) @ W,
        lambda ids: tf.one_hot(ids, 20) @ W @ W,
        lambda ids: tf.one_hot(ids, 20, 0.9, 0.1) @ W,
        lambda ids: tf.cast(ids[:, None] >= tf.range(20), tf.float32) @ W,
    ]
    for number, function in enumerate(lookups):
        assert looks_up(of_call(function)) == [1], number
    for number, function in enumerate(others):
        found = looks_up(of_call(function))
        # the first of two products
        assert found == [0.5 if number == 2 else 0], number
    w, ids = np.ones((20, 6), "float32"), np.zeros(4, int)
    assert looks_up(of_jax(lambda w, ids: jax.nn.one_hot(ids, 20) @ w, w, ids)) == [1]
    assert looks_up(of_jax(lambda w, ids: w[ids] @ w.T, w, ids)) == [0]
