"""The arrays at the peak of real steps are named, with their shape, op and line, and the remedy of their kind."""

import re

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers.profilers import profiler as new_profiler

from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.checks.limits import check_limits

pytestmark = [pytest.mark.full, pytest.mark.imports("keras", "jax")]

LINE = r"test_memory_causes\.py:\d+"
STEPS = {"warmup": 2, "steps": 4, "trace_steps": 4}


def ones(*shape):
    return np.ones(shape, "float32")


def explained(profile, bound="1 MiB"):
    """The lines `where` and `try` of a broken limit, and the share of the memory that they explain."""
    wanted = Wanted.read({"max_peak_memory": bound, **STEPS})
    profiler = new_profiler(wanted.given)
    try:
        found = profile(profiler)
        (check,) = check_limits(found, wanted.limits, None, False)
    finally:
        profiler.close()
    assert check.verdict.value == "FAIL", check.sentence
    where, remedies = (
        [text for label, text in (*check.details, *check.advice) if label == name]
        for name in ("where", "try")
    )
    return "\n".join(where), "\n".join(remedies), check.detail.get("accounted", 0)


def pairs(x):
    return tf.reduce_sum(tf.exp(-tf.abs(x[:, None] - x[None])))


def scores(x):
    return tf.nn.softmax(tf.matmul(x, x, transpose_b=True)) @ x


def one_hot(x):
    return tf.reduce_sum(tf.one_hot(tf.cast(x[:, 0], tf.int32), 10_000) * 2.0)


@jax.jit
def sorted_pairs(x):
    return jnp.sort(jnp.abs(x[:, None] - x[None]), axis=0).sum()


def of_tensorflow(function, **options):
    return lambda tf_profile: tf_profile(tf.function(function, **options), [ones(400, 16)] * 4)


LARGE = (
    (of_tensorflow(pairs), rf"float32\[400,400,16\].* at {LINE}", "product of matrices"),
    (lambda one: one(pairs, [tf.ones((400, 16))] * 4), rf"\[400,400,16\] of \w+ at {LINE}", "product of matrices"),
    (lambda one: one(tf.function(scores), [ones(1, 1000, 16)] * 4), rf"\[1,1000,1000\].* at {LINE}", "parts of the rows"),
    (of_tensorflow(one_hot), rf"float32\[400,10000\] of OneHot .* at {LINE}", "sparse loss"),
    (lambda one: one(sorted_pairs, [ones(200, 16)] * 4), rf"f32\[200,200,16\] of sub .* at {LINE}", "product of matrices"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("profile", "place", "remedy"),
    [LARGE[0], *(pytest.param(*row, marks=pytest.mark.full) for row in LARGE[1:])],
)
def test_an_array_that_is_larger_than_its_operands_has_the_remedy_of_its_op(profile, place, remedy):
    where, advice, accounted = explained(profile)
    assert re.search(place, where), where
    assert remedy in advice
    assert "smaller batch" not in advice
    assert accounted > 0.8, where


def loss(weights, rows):
    for weight in weights:
        rows = jnp.tanh(rows @ weight)
    return (rows**2).mean()


WEIGHTS = [jnp.ones((256, 256)) for _ in range(6)]


@pytest.mark.full
def test_results_that_the_gradient_needs_are_one_cause():
    layers = [keras.layers.Dense(128, "tanh") for _ in range(6)]
    model = keras.Sequential([keras.Input((128,)), *layers])
    model.compile("sgd", "mse")
    gradient = jax.jit(jax.grad(loss))
    for profile, again in (
        (lambda one: one(lambda rows: model.train_on_batch(rows, rows), [ones(4096, 128)] * 4), "tf.recompute_grad"),
        (lambda one: one(lambda rows: gradient(WEIGHTS, rows), [ones(4000, 256)] * 4), "jax.checkpoint"),
    ):  # fmt: skip
        where, advice, accounted = explained(profile)
        assert re.search(
            r"\d+ results kept for the gradient, the largest \S+\[4\d\d\d,\d+\]", where
        )
        assert again in advice
        assert advice.count("a smaller batch") == 1
        assert accounted > 0.6, where


def test_a_state_beside_its_successor_is_to_be_donated_and_gradients_are_not():
    """jax-ml/jax#2936, and a function whose results have the shapes of weights that the caller still needs."""
    kept = {"weights": WEIGHTS}

    @jax.jit
    def train(weights, rows):
        return jax.tree.map(lambda one, by: one - 0.1 * by, weights, jax.grad(loss)(weights, rows))

    def step(rows):
        kept["weights"] = train(kept["weights"], rows)

    where, advice, accounted = explained(lambda one: one(step, [ones(8, 256)] * 4))
    assert "results of train beside arguments of the same shapes: f32[256,256] ×6" in where
    assert "donate_argnums" in advice
    assert accounted > 0.8

    gradient = jax.jit(jax.grad(loss))
    where, advice, _ = explained(
        lambda one: one(lambda x: gradient(WEIGHTS, x), [ones(8, 256)] * 4)
    )
    assert "results of loss: f32[256,256] ×6" in where
    assert not advice


@pytest.mark.full
def test_no_batch_makes_arrays_of_the_size_of_a_table_smaller():
    """keras-team/keras#19992 in memory: the gradient of an embedding is made dense."""
    table = tf.Variable(tf.ones((64_000, 16)))

    @tf.function
    def train(ids):
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(tf.gather(table, ids) ** 2)
        slope = tf.convert_to_tensor(tape.gradient(value, table))
        table.assign_sub(0.1 * slope)

    where, advice, _ = explained(lambda one: one(train, [tf.range(64)] * 4))
    assert "float32[64000,16] of UnsortedSegmentSum" in where
    assert "sparse" in advice
    assert "batch" not in advice
