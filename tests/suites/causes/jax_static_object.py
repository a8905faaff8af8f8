"""
google-deepmind/optax#353: a static argument that is made anew for each call is traced again, though its values are the same.

Cause: the optimizer has neither `__eq__` nor `__hash__`, so two with equal values differ as keys of JAX's cache.
Remedy: a frozen dataclass (or `__eq__` and `__hash__`), or one object for all calls. By hand: a trace in each step, against none.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

EXPECTED = {
    "metric": "retraces",
    "where": r"(?is)train_step.*optimizer.*Momentum",
    "try": r"(?i)__eq__|__hash__|hash|dataclass|equal|(same|one) (object|optimizer|instance)|(make|create|build) .*once",
    "never": r"(?i)pad the last batch|lax\.cond",
}
BATCHES = [np.ones((16, 32), "float32") * number for number in range(4)]


class Momentum:
    def __init__(self, rate):
        self.rate = rate

    def update(self, weights, gradient):
        return weights - self.rate * gradient


@dataclasses.dataclass(frozen=True)
class FrozenMomentum:
    rate: float

    def update(self, weights, gradient):
        return weights - self.rate * gradient


@functools.partial(jax.jit, static_argnames="optimizer")
def train_step(optimizer, weights, rows):
    gradient = jax.grad(lambda weights: jnp.mean((rows @ weights) ** 2))(weights)
    return optimizer.update(weights, gradient)


@pytest.mark.tfperf(max_retraces=0)
def test_broken(tf_profile):
    weights = jnp.ones((32, 1))
    tf_profile(lambda rows: train_step(Momentum(0.01), weights, rows), BATCHES)


@pytest.mark.tfperf(max_retraces=0)
def test_fixed(tf_profile):
    weights = jnp.ones((32, 1))
    tf_profile(lambda rows: train_step(FrozenMomentum(0.01), weights, rows), BATCHES)
