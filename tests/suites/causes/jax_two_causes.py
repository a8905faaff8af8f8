"""
jax-ml/jax#2211, #1498: an agent's step converts lists to arrays, and clips its gradients outside `jax.jit`.

Causes: `jnp.array` of 20,000 Python numbers (30 to 60 ms), and 150 eager ops for 50 gradients (3 to 8 ms).
Remedies: `np.array` first, and the clipping inside of `jax.jit`. The message has to name both, the conversion first.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

EXPECTED = {
    "metric": "step_time",
    "where": r"(?is)(jnp\.array|array_constructors|jax/_src|in observe).*(eager|outside jax\.jit|clipped)",
    "try": r"(?is)(np\.(as)?array|numpy).*jax\.jit",
    "never": r"(?i)larger batch",
}
EPISODES = [[[float(number)] * 100 for _ in range(200)] for number in range(4)]
WEIGHTS = [jnp.ones((100, 8)) for _ in range(50)]


@jax.jit
def gradients(weights, rows):
    return jax.grad(lambda weights: sum(jnp.mean(jnp.tanh(rows @ each)) for each in weights))(
        weights
    )


def clipped(slopes):
    return [jnp.minimum(jnp.maximum(each, -1.0), 1.0) * 0.5 for each in slopes]


@pytest.mark.tfperf(max_step_time="6 ms")
def test_broken(tf_profile):
    def step(episode):
        rows = jnp.array(episode)
        return clipped(gradients(WEIGHTS, rows))

    tf_profile(step, EPISODES, unpack=False)


@pytest.mark.tfperf(max_step_time="6 ms")
def test_fixed(tf_profile):
    whole = jax.jit(lambda weights, rows: clipped(gradients(weights, rows)))
    tf_profile(lambda episode: whole(WEIGHTS, np.array(episode, "float32")), EPISODES, unpack=False)
