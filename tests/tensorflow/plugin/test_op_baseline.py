"""A baseline tells which op of a real step has more FLOPs or another type, and where it is now."""

import pytest

pytestmark = [pytest.mark.usefixtures("processes"), pytest.mark.imports("jax", "keras")]

STEP = """
w = tf.Variable(tf.ones((16, 16)))

def block(x):
    return tf.matmul(x, w)

@tf.function
def step(x):
    return tf.reduce_sum(block(x))

def test_step(tf_profile):
    tf_profile(step, [tf.ones((16, 16))] * 4, **STEP_ARGUMENTS)
"""
TWICE = STEP.replace("\ndef block", "\n\n\ndef block").replace("tf.matmul(x, w)", "x @ w @ w")
WIDE = STEP.replace(
    "tf.matmul(x, w)",
    'tf.cast(tf.cast(x, "float64") @ tf.cast(w, "float64"), "float32")',
)
FIT = """
import keras

def test_fit(tf_profile):
    layers = [keras.layers.Dense(width, name=f"dense_{n}") for n, width in enumerate((32, 32, 32))]
    model = keras.Sequential([keras.Input((16,)), *layers])
    model.compile("sgd", "mse")
    x, y = np.ones((64, 16), "float32"), np.ones((64, 32), "float32")
    tf_profile.fit(model, x, y, batch_size=16, epochs=20, verbose=0)
"""
JAX = """
import jax
import jax.numpy as jnp

@jax.jit
def step(w, x):
    return jax.grad(lambda w: jnp.tanh(x @ w).sum())(w)

def test_step(tf_profile):
    w = jnp.ones((16, 16))
    tf_profile(lambda x: step(w, x), [jnp.ones((16, 16))] * 4, warmup=2, steps=4, trace_steps=3)
"""


def line_of(text, suite_file):
    return 1 + suite_file.read_text().split("\n").index(text)


def test_more_flops_name_their_op_with_its_line_of_today(suite):
    suite.regresses(
        STEP, TWICE, "*flops rose from *", "  MatMul at test_suite.py:*: 8,192 → 16,384 FLOP"
    )
    line = line_of("    return x @ w @ w", suite.path / "test_suite.py")
    detail = (suite.path / "__tfperf__/detail/test_suite.py.json").read_text()
    assert "MatMul float32 8192 test_suite.py:block" in detail
    assert "MatMul" not in (suite.path / "__tfperf__/test_suite.json").read_text()
    result = suite("--tfperf-baseline", "--tfperf-only=structural")
    result.stdout.fnmatch_lines([f"  MatMul at test_suite.py:{line}: *"])


def test_casts_to_float64_are_named_with_their_line(suite):
    suite.regresses(
        STEP, WIDE, "test_step: graph_ops rose *", "  2 Cast to float64 at test_suite.py:*"
    )


@pytest.mark.full
def test_products_that_lose_their_16_bits_are_named_though_nothing_fails(suite):
    before = STEP.replace(
        "tf.matmul(x, w)", 'tf.matmul(tf.cast(x, "bfloat16"), tf.cast(w, "bfloat16"))'
    )
    suite.write(before)
    suite("--tfperf-update").assert_outcomes(passed=1)
    suite.write(STEP)
    result = suite("--tfperf-baseline", "--tfperf-only=structural", "-vv")
    result.stdout.fnmatch_lines(
        ["changed *: half_precision fell *", "*MatMul at test_suite.py:*: bfloat16 → float32"]
    )


@pytest.mark.full
def test_a_wider_layer_of_keras_is_named_without_the_line_of_fit(suite):
    after = FIT.replace("(32, 32, 32)", "(32, 96, 32)")
    suite.regresses(
        FIT, after, "test_fit: flops rose from *", "  MatMul in sequential*dense_1*: * → * FLOP"
    )


@pytest.mark.full
def test_more_flops_of_jax_name_their_line(suite):
    after = JAX.replace("x @ w)", "x @ w @ w)")
    suite.regresses(
        JAX, after, "test_step: flops rose *", "  dot_general at test_suite.py:*: 16,384 → *"
    )


def test_a_baseline_without_ops_names_the_largest_and_no_difference(suite):
    suite.write(STEP)
    suite("--tfperf-update").assert_outcomes(passed=1)
    (suite.path / "__tfperf__/detail/test_suite.py.json").unlink()
    suite.write(TWICE)
    result = suite("--tfperf-baseline", "--tfperf-only=structural")
    result.stdout.fnmatch_lines(["  where: MatMul ×2 at test_suite.py:*: 16,384 FLOP (* of all)"])
    result.stdout.no_fnmatch_line("*8,192*")
