"""
jax-ml/jax#968: random numbers by `jax.random.split` in a Python loop are more than 200 times slower than NumPy's.

Cause: each of 256 rows splits the key by an op of its own outside `jax.jit`. Remedy: one `jax.random.split(key, 256)`, or one large draw,
or the loop inside of `jax.jit`. By hand: 24 to 90 ms, against 0.5 ms.
"""

import jax
import jax.numpy as jnp
import pytest

EXPECTED = {
    "metric": "step_time",
    "where": r"(?i)split|threefry|jax_split_keys\.py:\d+",
    "try": r"(?i)jax\.jit|split\(.*(,|num)|one (call|split|op)|vmap|fold_in|lax\.scan|all .*at once",
    "never": r"(?i)donat|larger batch|device_put|np\.asarray|16 bits",
}
BATCHES = [jnp.ones((256, 64))] * 4


@jax.jit
def noisy(rows, keys):
    return rows + jax.vmap(lambda key: jax.random.normal(key, (64,)))(keys)


@pytest.mark.tfperf(max_step_time="8 ms")
def test_broken(tf_profile):
    state = {"key": jax.random.key(0)}

    def step(rows):
        keys = []
        for _ in range(len(rows)):
            state["key"], key = jax.random.split(state["key"])
            keys.append(key)
        return noisy(rows, jnp.stack(keys))

    tf_profile(step, BATCHES)


@pytest.mark.tfperf(max_step_time="8 ms")
def test_fixed(tf_profile):
    state = {"key": jax.random.key(0)}

    def step(rows):
        state["key"], key = jax.random.split(state["key"])
        return noisy(rows, jax.random.split(key, len(rows)))

    tf_profile(step, BATCHES)
