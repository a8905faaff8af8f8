"""
google-deepmind/optax#319: training is slow since only the loss is under `jax.jit`, and the optimizer's update is not.

Cause: Adam's arithmetic on each of 40 arrays runs op by op, each op a program that Python launches.
Remedy: one `jax.jit` around the gradient and the update. By hand: 12 to 30 ms, against 0.6 ms.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

EXPECTED = {
    "metric": "step_time",
    "where": r"(?is)(eager|outside jax\.jit|multiply|op by op).*jax_update_outside_jit\.py:\d+",
    "try": r"(?i)jax\.jit",
    "never": r"(?i)larger batch|static argument|callback",
}
LAYERS = 20
BATCHES = [np.ones((16, 32), "float32") * number for number in range(4)]


def start():
    layers = [{"kernel": jnp.eye(32), "bias": jnp.zeros(32)} for _ in range(LAYERS)]
    zeros = jax.tree.map(jnp.zeros_like, layers)
    return layers, (zeros, zeros)


@jax.jit
def gradient(layers, rows):
    def loss(layers):
        hidden = rows
        for layer in layers:
            hidden = jnp.tanh(hidden @ layer["kernel"] + layer["bias"])
        return jnp.mean(hidden**2)

    return jax.grad(loss)(layers)


def adam(layers, moments, slopes):
    first, second = moments
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slopes)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, slopes)
    layers = jax.tree.map(
        lambda w, m, v: w - 0.001 * m / (jnp.sqrt(v) + 1e-8), layers, first, second
    )
    return layers, (first, second)


def training(update):
    kept = {"state": start()}

    def step(rows):
        kept["state"] = update(*kept["state"], rows)
        return kept["state"]

    return step


@pytest.mark.tfperf(max_step_time="3 ms")
def test_broken(tf_profile):
    tf_profile(
        training(lambda layers, moments, rows: adam(layers, moments, gradient(layers, rows))),
        BATCHES,
    )


@pytest.mark.tfperf(max_step_time="3 ms")
def test_fixed(tf_profile):
    tf_profile(
        training(
            jax.jit(lambda layers, moments, rows: adam(layers, moments, gradient(layers, rows)))
        ),
        BATCHES,
    )
