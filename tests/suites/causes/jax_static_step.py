"""
jax-ml/jax#1033, #691: a function compiles in each step, since it takes the number of the step as a static argument.

Cause: each value of a static argument is another executable. Remedy: leave the argument out of `static_argnames`, so that it is traced.
By hand: a compilation in each step, against one.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

EXPECTED = {
    "metric": "xla_compiles",
    "where": r"(?is)add_noise.*\b(number|static)",
    "try": r"(?i)static_arg|traced|(not|no longer|without|instead of).*static|pass.*(array|traced)|jnp\.asarray",
    "never": r"(?i)\bpad\b|last batch|bucket|weak",
}
BATCHES = [np.ones((16, 8), "float32")] * 4


def noisy(batch, number):
    key = jax.random.fold_in(jax.random.key(0), number)
    return batch + jax.random.normal(key, batch.shape) / (1.0 + number)


@functools.partial(jax.jit, static_argnames="number")
def add_noise(batch, number):
    return noisy(batch, number)


@jax.jit
def add_noise_traced(batch, number):
    return noisy(batch, number)


def counting(function):
    count = 0

    def step(batch):
        nonlocal count
        count += 1
        return jnp.mean(function(batch, number=count))

    return step


@pytest.mark.tfperf(max_xla_compiles=0)
def test_broken(tf_profile):
    tf_profile(counting(add_noise), BATCHES)


@pytest.mark.tfperf(max_xla_compiles=0)
def test_fixed(tf_profile):
    tf_profile(counting(add_noise_traced), BATCHES)
