"""
jax-ml/jax#2586, #20628: a solver with a `while_loop` under `jax.vmap` takes as long as its slowest row, for all rows.

Cause: under `jax.vmap` the loop runs until no row wants to go on, and computes all 256 rows in each of 1,000 iterations, though 255 rows
are done after five. Remedy: `jax.lax.map` (a loop for each row), or rows of similar length together. By hand: 18 to 55 ms, against 0.6 to
2.5 ms.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

EXPECTED = {
    "unmet": "no op of the program tells how many rows of a jax.vmap still need an iteration",
    "metric": "step_time",
    "where": r"(?i)\bwhile\b|while_loop|jax_slowest_row\.py:(2[4-9]|30)\b",
    "try": r"(?i)lax\.map|(slowest|longest|unfinished|finished) (row|element|example)|(group|sort|similar|bucket).*(row|length|iteration)|fewer iterations|vmap",
    "never": r"(?i)donat|lax\.scan, or|larger batch|outside (of )?jax\.jit",
}
WEIGHTS = jnp.asarray(np.random.default_rng(0).random((64, 64), "float32") / 64)
ITERATIONS = jnp.asarray(np.where(np.arange(256) == 7, 1000, 5))
BATCHES = [jnp.ones((256, 64))] * 4


def solve(start, iterations):
    def advance(state):
        x, left = state
        return jnp.tanh(WEIGHTS @ x) + start, left - 1

    return jax.lax.while_loop(lambda state: state[1] > 0, advance, (start, iterations))[0]


@pytest.mark.tfperf(max_step_time="6 ms")
def test_broken(tf_profile):
    step = jax.jit(lambda rows: jax.vmap(solve)(rows, ITERATIONS))
    tf_profile(step, BATCHES)


@pytest.mark.tfperf(max_step_time="6 ms")
def test_fixed(tf_profile):
    step = jax.jit(lambda rows: jax.lax.map(lambda row: solve(*row), (rows, ITERATIONS)))
    tf_profile(step, BATCHES)
