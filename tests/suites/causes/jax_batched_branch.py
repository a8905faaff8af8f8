"""
jax-ml/jax#3103, #8409: a `lax.cond` saves no time, although its expensive branch is rarely taken.

Cause: under `jax.vmap` the condition is one of each row, so JAX computes both branches for all 256 rows and selects. Remedy: `jax.lax.map`
(a condition for a row), or gather the few rows that need it. By hand: 85 ms, against 0.5 ms.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

EXPECTED = {
    "unmet": "no op of the program tells that jax.vmap made a select of jax.lax.cond",
    "metric": "step_time",
    "where": r"(?i)refined|jax_batched_branch\.py:\d+|dot_general",
    "try": r"(?i)lax\.map|lax\.scan|both branches|(cond|vmap).*(branch|select|row)|gather|only the rows",
    "never": r"(?i)unroll|donate|larger batch|outside jax\.jit",
}
BATCHES = [np.linspace(0, 1, 256, dtype="float32")] * 4
KERNEL = np.random.default_rng(0).normal(size=(64, 64)).astype("float32") / 8


def refined(value):
    square = KERNEL * value
    for _ in range(20):
        square = jnp.tanh(square @ KERNEL)
    return square.mean()


def estimate(value):
    return jax.lax.cond(value > 0.99, refined, lambda value: value, value)


@jax.jit
def estimate_all(values):
    return jax.vmap(estimate)(values)


@jax.jit
def estimate_in_turn(values):
    return jax.lax.map(estimate, values)


@pytest.mark.tfperf(max_step_time="12 ms")
def test_broken(tf_profile):
    tf_profile(estimate_all, BATCHES)


@pytest.mark.tfperf(max_step_time="12 ms")
def test_fixed(tf_profile):
    tf_profile(estimate_in_turn, BATCHES)
