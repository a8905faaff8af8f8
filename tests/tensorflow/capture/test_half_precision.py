"""What makes products wider than 16 bits: the place of the cast, or the layer, with its remedy."""

import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.full

HALF = {"limits": {"min_half_precision": 1}}


def explained(profiled):
    detail = profiled.value("half_precision").detail
    return detail["where"], detail["try"]


def line_of(text):
    """Return `file:number` of the line of this file that ends with a comment."""
    rows = Path(__file__).read_text().splitlines()
    (number,) = [n for n, row in enumerate(rows, 1) if row.endswith(f"# {text}")]
    return f"test_half_precision.py:{number}"


@pytest.fixture
def mixed():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    yield
    keras.config.set_dtype_policy(before)


@pytest.mark.parametrize("first", [True, False])
def test_a_layer_of_float32_is_named_with_its_share(profile, mixed, first):
    dense = keras.layers.Dense
    exact = dense(64, "relu", dtype="float32", name="exact")
    layers = [exact, dense(64)] if first else [dense(64), exact]
    model = keras.Sequential([keras.Input((64,)), *layers, dense(1)])
    model.compile("sgd", "mse")
    rows = np.ones((320, 64), "float32")
    fitted = profile.fit(model, rows, rows[:, :1], batch_size=32, epochs=20, verbose=0, **HALF)
    where, remedy = explained(fitted)
    wide, _, narrow = where.partition("; 16 bits: ")
    assert re.search(r"MatMul and gradient in \w+/exact\w* \([\d.]+ %, float32", wide)
    assert "dense" not in wide
    assert "exact" not in narrow
    assert ("since the cast" in wide) is not first  # the first layer reads the input itself
    assert "dtype=" in remedy
    assert "set_global_policy" not in remedy


def test_products_behind_a_cast_of_a_graph_name_it(profile):
    narrow, wide = tf.Variable(tf.ones((64, 64), tf.bfloat16)), tf.Variable(tf.ones((64, 64)))

    @tf.function
    def step(x):
        x = tf.cast(x @ narrow, tf.float32)  # cast of a graph
        return tf.nn.relu(x @ wide) @ wide

    where, remedy = explained(profile(step, [tf.ones((32, 64), tf.bfloat16)] * 4, **HALF))
    assert f"(66.7 %, float32 since the cast at {line_of('cast of a graph')})" in where
    assert "no cast to float32" in remedy


@pytest.mark.imports("jax")
def test_the_first_of_promotions_is_named(profile):
    import jax
    import jax.numpy as jnp

    scale, weight = np.full(64, 0.5, "float32"), jnp.ones((64, 64), "bfloat16")
    rows = [np.ones((32, 64), "bfloat16") * number for number in range(4)]

    def through_layers(x):
        x = x * scale  # promotion
        for _ in range(3):
            x = jnp.tanh(x @ weight)
        return x.mean()

    def through_a_loop(x):
        x = x + jnp.float32(2)  # promotion of a state
        return jax.lax.scan(lambda x, _: (jnp.tanh(x @ weight), None), x, length=5)[0]

    for function, line in (
        (through_layers, line_of("promotion")),
        (through_a_loop, line_of("promotion of a state")),
        (jax.grad(through_layers), line_of("promotion")),
    ):
        where, remedy = explained(profile(jax.jit(function), rows, name=f"{function}", **HALF))
        assert f"float32 since the cast at {line}" in where, where
        assert "as the other operand" in remedy


@pytest.mark.imports("jax")
def test_wide_arguments_need_another_type(profile):
    import jax
    import jax.numpy as jnp

    weight, step = jnp.ones((64, 64)), jax.jit(lambda weight, x: (x @ weight).sum())
    rows = [np.ones((32, 64), "bfloat16")] * 4
    where, remedy = explained(profile(lambda x: step(weight, x), rows, **HALF))
    assert "100 %, float32)" in where
    assert remedy.startswith("cast parameters and inputs")
