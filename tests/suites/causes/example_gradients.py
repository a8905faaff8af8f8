"""
tensorflow/tensorflow#4897, #675: the gradient of each example, by a Python loop over the batch, starts very slowly.

Cause: the graph has a forward and a backward pass for each of 32 examples. Remedy: one gradient for all examples, by `tape.jacobian`,
`tf.vectorized_map`, or algebra. By hand: 2.1 to 5.8 s, against 0.3 to 0.8 s.
"""

import pytest
import tensorflow as tf

EXPECTED = {
    "metric": "first_step_time",
    "where": r"(?i)trac.*(example_gradients\.py:\d+|one_by_one|\d+ (ops|nodes|times))|(example_gradients\.py:\d+|one_by_one).*trac",
    "try": r"(?i)vectori[sz]ed_map|jacobian|tf\.range|tf\.while_loop|map_fn|while loop|unroll|whole batch",
    "never": r"(?i)compilation cache|larger batch",
}

KERNELS = [tf.Variable(tf.random.normal((16, 16)) / 4) for _ in range(6)]
BATCHES = [tf.random.normal((32, 16))] * 4


def losses_of(rows):
    for kernel in KERNELS:
        rows = tf.tanh(rows @ kernel)
    return tf.reduce_sum(rows**2, axis=1)


def clipped(gradients):
    norm = tf.sqrt(sum(tf.reduce_sum(gradient**2) for gradient in gradients))
    return [gradient / tf.maximum(norm, 1.0) for gradient in gradients]


@tf.function
def one_by_one(rows):
    total = [tf.zeros_like(kernel) for kernel in KERNELS]
    for row in tf.unstack(rows):
        with tf.GradientTape() as tape:
            loss = losses_of(row[None])
        parts = clipped(tape.gradient(loss, KERNELS))
        total = [sum_ + part for sum_, part in zip(total, parts, strict=True)]
    return total


@tf.function
def all_at_once(rows):
    with tf.GradientTape() as tape:
        losses = losses_of(rows)
    gradients = tape.jacobian(losses, KERNELS)
    norms = tf.sqrt(sum(tf.reduce_sum(gradient**2, axis=(1, 2)) for gradient in gradients))
    scale = 1 / tf.maximum(norms, 1.0)[:, None, None]
    return [tf.reduce_sum(gradient * scale, axis=0) for gradient in gradients]


@pytest.mark.tfperf(max_first_step_time="850 ms")
def test_broken(tf_profile):
    tf_profile(one_by_one, BATCHES)


@pytest.mark.tfperf(max_first_step_time="850 ms")
def test_fixed(tf_profile):
    tf_profile(all_at_once, BATCHES)
