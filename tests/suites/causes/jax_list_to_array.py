"""
jax-ml/jax#10662, #19500: `jnp.array` of nested Python lists is slow in each step.

Cause: JAX looks at 40,000 Python numbers one by one.
Remedy: `jnp.array(np.array(rows))`, since NumPy does it in C. By hand: 100 to 300 ms, against 3 ms.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

EXPECTED = {
    "metric": "step_time",
    "where": r"(?is)(jnp\.array|array_constructors|jax/_src/\S*).*jax_list_to_array\.py:\d+|jax_list_to_array\.py:\d+.*(jnp\.array|array_constructors|jax/_src)",
    "try": r"(?i)np\.(as)?array|numpy",
    "never": r"(?i)larger batch|into (the )?jax\.jit",
}
ROWS = [[float(column) for column in range(200)] for _ in range(200)]
mean = jax.jit(lambda x: jnp.tanh(x).mean())


@pytest.mark.tfperf(max_step_time="15 ms")
def test_broken(tf_profile):
    tf_profile(lambda rows: mean(jnp.array(rows)), [ROWS] * 4, unpack=False)


@pytest.mark.tfperf(max_step_time="15 ms")
def test_fixed(tf_profile):
    tf_profile(lambda rows: mean(jnp.array(np.array(rows, "float32"))), [ROWS] * 4, unpack=False)
