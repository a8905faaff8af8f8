"""The ops of real steps: their FLOPs add up, their places are the user's, and look-ups are known."""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.capture.inspection import StepInspection
from pytest_tfperf.compiler.step_calls import Probe, calls_recorded
from pytest_tfperf.hlo.avoidable import DIAGONAL, LOOK_UP, SLICED
from pytest_tfperf.hlo.cost import module_costs
from pytest_tfperf.hlo.decode import decode_module
from pytest_tfperf.metrics.op_work import ops_of
from pytest_tfperf.values import Unknown

pytestmark = [pytest.mark.full, pytest.mark.imports("keras", "jax")]

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
    programs = [(module_costs(module), runs) for module, runs in lowered]
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


def test_the_gradient_of_an_op_belongs_to_it_also_in_a_loop():
    @tf.function
    def train(x):
        with tf.GradientTape() as tape:
            y = x
            for _ in tf.range(5):
                y = y @ W
            loss = tf.reduce_sum(y)
        return tape.gradient(loss, W)

    [product] = [op for op in of_tensorflow(lambda: train(X))[1] if op.work.matmul_flops]
    assert (product.op_type, product.n_ops, product.has_gradient) == ("MatMul", 5, True)
    assert product.place.startswith("at test_op_work.py:")  # and not in a layer named while
    w, x = jnp.ones((4, 4)), jnp.ones((3, 4))
    ops = of_jax(jax.grad(lambda w, x: jnp.tanh(x @ w).sum()), w, x)[1]
    [product] = [op for op in ops if op.work.matmul_flops]
    assert (product.op_type, product.n_ops, product.has_gradient) == ("dot_general", 1, True)


def test_an_op_has_the_line_and_the_function_or_layer_of_the_user():
    layer = keras.layers.Dense(3, name="wide")
    line = block.__code__.co_firstlineno + 1
    step = tf.function(lambda x: layer(tf.einsum("ab,bc->ac", block(block(x)), W)))
    ops = of_tensorflow(lambda: step(X))[1]
    seen = {(op.op_type, op.dtype): (op.key, op.n_ops, op.place) for op in ops}
    of_block = ("test_op_work.py:block", 2, f"at test_op_work.py:{line}")
    assert seen["Mul", "float64"] == seen["Cast", "float64"] == of_block
    keys = {(op.op_type, op.key) for op in ops}
    assert {("MatMul", "wide"), ("Einsum", "test_op_work.py")} <= keys


class Embedded(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.table = self.add_weight((20, 6))

    def call(self, ids):
        return keras.ops.matmul(keras.ops.one_hot(ids, 20), self.table)


def needless(found):
    """Kinds and saved shares of products."""
    return [(op.avoidable, op.saved / op.work.flops) for op in found[1] if op.work.matmul_flops]


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
        lambda ids: tf.one_hot(ids, 20, 0.9, 0.1) @ W,
        lambda ids: tf.cast(ids[:, None] >= tf.range(20), tf.float32) @ W,
    ]
    for number, function in enumerate(lookups):
        assert needless(of_call(function)) == [(LOOK_UP, 1)], number
    for number, function in enumerate(others):
        assert needless(of_call(function)) == [("", 0)], number
    # of two products in a line, the first
    assert needless(of_call(lambda ids: tf.one_hot(ids, 20) @ W @ W)) == [(LOOK_UP, 0.5)]
    w, ids = np.ones((20, 6), "float32"), np.zeros(4, int)
    assert needless(of_jax(lambda w, ids: jax.nn.one_hot(ids, 20) @ w, w, ids)) == [(LOOK_UP, 1)]
    assert needless(of_jax(lambda w, ids: w[ids] @ w.T, w, ids)) == [("", 0)]
    mask = lambda w, ids: (ids == jnp.arange(20)).astype("float32") @ w  # noqa: E731
    assert needless(of_jax(mask, w, np.zeros((4, 20), int))) == [("", 0)]
    assert needless(of_jax(mask, w, np.zeros((4, 1), int))) == [(LOOK_UP, 1)]


def test_a_product_with_a_diagonal_matrix_is_told_from_others():
    d, w = np.ones(20, "float32"), np.ones((20, 6), "float32")
    assert needless(of_call(lambda ids: tf.linalg.diag(W[0]) @ W)) == [(DIAGONAL, 1)]
    assert needless(of_call(lambda ids: W @ tf.linalg.diag(W[0]))) == [(DIAGONAL, 1)]
    assert needless(of_jax(lambda d, w: jnp.diag(d) @ w, d, w)) == [(DIAGONAL, 1)]
    lower = np.tri(20, dtype="float32")
    assert needless(of_call(lambda ids: tf.linalg.band_part(W, -1, 0) @ W)) == [("", 0)]
    assert needless(of_jax(lambda a, w: jnp.tril(a) @ w, lower, w)) == [("", 0)]


def test_a_product_of_which_a_part_is_used_is_told_from_one_that_is_split():
    x = tf.ones((4, 8, 20))
    layer = keras.layers.Dense(6)
    cases = [
        (lambda ids: layer(x)[:, -1], [(SLICED, 7 / 8)]),
        (lambda ids: tf.tanh(x @ W)[:, 2:4], [(SLICED, 6 / 8)]),
        (lambda ids: tf.split(x @ W, 2, axis=-1), [("", 0)]),
        (lambda ids: (x @ W)[:, 1:], [("", 0)]),
        (lambda ids: tf.nn.softmax(x @ W, axis=1)[:, -1], [("", 0)]),
    ]
    for number, (function, wanted) in enumerate(cases):
        assert needless(of_call(function)) == wanted, number
    rows, w = np.ones((4, 8, 20), "float32"), np.ones((20, 6), "float32")
    loss = jax.value_and_grad(lambda w, x: jnp.tanh((x @ w)[:, -1]).sum())
    assert needless(of_jax(loss, w, rows)) == [(SLICED, 7 / 8)]
    assert needless(of_jax(lambda w, x: (x @ w).sum(1), w, rows)) == [("", 0)]


def test_a_product_of_a_function_has_the_kind_that_all_of_its_calls_agree_on():
    product = jax.jit(lambda x, w: x @ w)
    x, w = np.ones((8, 20), "float32"), np.ones((20, 6), "float32")
    first = lambda x, w: product(x, w)[:, :1].sum()  # noqa: E731
    assert needless(of_jax(lambda x, w: first(x, w) + first(x + 1, w), x, w)) == [(SLICED, 5 / 6)]
    found = of_jax(lambda x, w: first(x, w) + product(x + 1, w).sum(), x, w)
    assert {kind for kind, _ in needless(found)} == {""}
