"""
google-deepmind/optax#1171, jax-ml/jax#2251: `lax.scan` outside `jax.jit` compiles in each call.

Cause: the body is a function that each call defines anew, so JAX traces and XLA compiles the loop again.
Remedy: `jax.jit` around the function that has the loop. By hand: 60 to 200 ms, against 0.1 ms.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

EXPECTED = {
    "metric": "step_time",
    "where": r"(?is)(compil|trac).*(scan|body|jax_scan_outside_jit\.py:\d+)",
    "try": r"(?i)jax\.jit|(define|move).*(once|outside)",
    "never": r"(?i)last batch|pad|larger batch",
}
SERIES = [np.ones((50, 16), "float32") * number for number in range(4)]


def smoothed(series):
    def body(level, row):
        level = 0.9 * level + 0.1 * jnp.tanh(row)
        return level, level

    return jax.lax.scan(body, jnp.zeros(16), series)[1]


@pytest.mark.tfperf(max_step_time="8 ms")
def test_broken(tf_profile):
    tf_profile(smoothed, SERIES)


@pytest.mark.tfperf(max_step_time="8 ms")
def test_fixed(tf_profile):
    tf_profile(jax.jit(smoothed), SERIES)
