"""FLOPs of ops of TensorFlow and JAX, counted by hand: those on floating-point numbers count."""

import pytest
import tensorflow as tf

from pytest_tfperf.hlo.cost import module_costs
from pytest_tfperf.hlo.decode import decode_module

N = 4096
FLOATS, INTS = tf.TensorSpec((N,)), tf.TensorSpec((N,), tf.int32)


def by_tensorflow(function, *specs):
    step = tf.function(function, jit_compile=True, autograph=False)
    raw = step.experimental_get_compiler_ir(*specs)(stage="hlo_serialized")
    return module_costs(decode_module(raw, "m")).flops


def test_ops_of_tensorflow_count_their_work_on_floats():
    for name, function, specs, flops in [
        ("bits", lambda: tf.random.stateless_uniform([N], [1, 2], 0, 9, tf.int32), [], 0),
        ("hash", lambda x: tf.bitwise.bitwise_xor(x * 31 + 7, x), [INTS], 0),
        ("unique", lambda x: tf.unique(x)[1], [INTS], 0),
        ("sort", lambda x: tf.sort(x, direction="DESCENDING"), [FLOATS], 0),
        ("argmax", lambda x: tf.argmax(x), [FLOATS], 0),
        ("cast", lambda x: tf.cast(tf.cast(x, tf.bfloat16), tf.int32), [FLOATS], 0),
        ("where", lambda x: tf.where(x > 0, x, 0.0), [FLOATS], 0),
        ("sum of counts", lambda x: tf.reduce_sum(x), [INTS], 0),
        ("cumulative sum", lambda x: tf.cumsum(x), [FLOATS], N - 1),
        ("exclusive", lambda x: tf.cumsum(x, exclusive=True, reverse=True), [FLOATS], N - 1),
        ("of rows", lambda x: tf.cumsum(tf.reshape(x, (64, 64)), 1), [FLOATS], 64 * 63),
        ("sum", lambda x: tf.reduce_sum(x), [FLOATS], N - 1),
        ("dropout", lambda x: tf.nn.dropout(x, 0.5), [FLOATS], N),  # scales x
    ]:
        assert by_tensorflow(function, *specs) == flops, name


@pytest.mark.imports("jax")
def test_ops_of_jax_count_their_work_on_floats():
    import jax
    import jax.numpy as jnp

    key, x, i = jax.random.key(0), jnp.ones(N), jnp.ones(N, jnp.int32)

    def by_jax(function, *args):
        lowered = jax.jit(function).lower(*args).compiler_ir("hlo")
        raw = lowered.as_serialized_hlo_module_proto()
        return module_costs(decode_module(raw, "m")).flops

    for name, function, args, flops in [
        ("bits", lambda: jax.random.bits(key, (N,)), [], 0),
        ("hash", lambda x: (x * 31 + 7) ^ (x >> 3), [i], 0),
        ("unique", lambda x: jnp.unique(x, size=10), [i], 0),
        ("sort", jnp.sort, [x], 0),
        ("argmax", jnp.argmax, [x], 0),
        ("cast", lambda x: x.astype(jnp.bfloat16).astype(jnp.int32), [x], 0),
        ("where", lambda x: jnp.where(x > 0, x, 0.0), [x], 0),
        ("cumulative sum", jnp.cumsum, [x], N - 1),
        ("from the end", lambda x: jax.lax.cumsum(x, reverse=True), [x], N - 1),
        ("of rows", lambda x: jnp.cumsum(x.reshape(64, 64), 1), [x], 64 * 63),
        ("cumulative maximum", jax.lax.cummax, [x], N - 1),
        ("sum", jnp.sum, [x], N - 1),
        # of the bits: − 1, × (high − low), + low, max; then x is scaled
        (
            "dropout",
            lambda x: jnp.where(jax.random.bernoulli(key, 0.5, (N,)), x / 0.5, 0),
            [x],
            5 * N + 1,
        ),
    ]:
        assert by_jax(function, *args) == flops, name


@pytest.mark.imports("jax")
def test_callbacks_of_jax_leave_the_products_around_them_known():
    import jax
    import jax.numpy as jnp

    def step(x):
        y = x @ x.T
        jax.debug.callback(lambda y: None, y)
        z = jax.pure_callback(lambda y: y * 2, jax.ShapeDtypeStruct(y.shape, y.dtype), y)
        return z @ x

    lowered = jax.jit(step).lower(jnp.ones((8, 4))).compiler_ir("hlo")
    raw = lowered.as_serialized_hlo_module_proto()
    costs = module_costs(decode_module(raw, "m"))
    assert (costs.flops, costs.uncounted, costs.opaque) == (2 * 8 * 8 * 4 * 2, (), ())
