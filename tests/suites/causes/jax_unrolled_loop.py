"""
jax-ml/jax#2777, #1223: a Python loop in a `jax.jit` function compiles for seconds.

Cause: Python's loop is unrolled, so its body is traced and compiled 1,000 times.
Remedy: `jax.lax.scan` or `fori_loop`, which compile it once. By hand: 2.5 to 6 s for the first step, against 0.1 s.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

EXPECTED = {
    "metric": "first_step_time",
    "where": r"(?is)(unrolled|compil|trac).*(1,?000|repeat|loop|ops|instructions|jax_unrolled_loop\.py:\d+)",
    "try": r"(?i)lax\.scan|fori_loop",
    "never": r"(?i)as an argument|keep shapes",
}
X = [np.ones((8, 8), "float32") * number for number in range(4)]


def cell(x):
    return jnp.tanh(x @ x.T + jnp.sin(x)) * 0.5


def unrolled(x):
    for _ in range(1000):
        x = cell(x)
    return x


def scanned(x):
    return jax.lax.scan(lambda x, _: (cell(x), None), x, length=1000)[0]


@pytest.mark.tfperf(max_first_step_time="700 ms")
def test_broken(tf_profile):
    tf_profile(jax.jit(unrolled), X)


@pytest.mark.tfperf(max_first_step_time="700 ms")
def test_fixed(tf_profile):
    tf_profile(jax.jit(scanned), X)
