"""
google-deepmind/optax#1440, jax-ml/jax#3163: the second training step is traced and compiled again.

Cause: `jnp.asarray(0.0)` is weakly typed, and the average that the step returns is not, so the types of the state differ.
Remedy: give the start value a dtype. By hand: 2 traces, against 1.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

EXPECTED = {
    "tier": "full",
    "metric": "retraces",
    "where": r"(?is)update.*average.*weak",
    "try": r"(?i)dtype|jnp\.zeros|strong|astype|(explicit|one) type",
    "never": r"(?i)\bpad\b|static argument|Python number\) → .*(as of an array)",
}
BATCHES = [np.ones((16, 32), "float32") * number for number in range(4)]


def training(average):
    @jax.jit
    def update(weights, state, rows):
        loss, slope = jax.value_and_grad(lambda weights: jnp.mean((rows @ weights) ** 2))(weights)
        state = {"average": 0.9 * state["average"] + 0.1 * loss, "count": state["count"] + 1}
        return weights - 0.01 * slope, state

    count = jnp.zeros((), "int32")
    kept = {"weights": jnp.ones((32, 1)), "state": {"average": average, "count": count}}

    def step(rows):
        kept["weights"], kept["state"] = update(kept["weights"], kept["state"], rows)
        return kept["weights"]

    return step


@pytest.mark.tfperf(max_retraces=0)
def test_broken(tf_profile):
    tf_profile(training(jnp.asarray(0.0)), BATCHES)


@pytest.mark.tfperf(max_retraces=0)
def test_fixed(tf_profile):
    tf_profile(training(jnp.zeros((), "float32")), BATCHES)
