"""
jax-ml/jax#837, #15412: sampling from a sequence model compiles for each length of the context.

Cause: the context grows by a token a step, and XLA compiles an executable for each shape.
Remedy: one buffer of the largest length (or a few), and the length as an array. By hand: 47 compilations, against 1.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

EXPECTED = {
    "metric": "xla_compiles",
    "where": r"(?is)(next_token|jit_next_token).*\[4,\d+\]",
    "try": r"(?i)\bpad|bucket|fixed (size|length|shape)|few (sizes|lengths|shapes)|round",
    "never": r"(?i)drop_remainder|static argument|last batch",
}
LONGEST = 48
TABLE = jnp.linspace(-1, 1, 3200).reshape(100, 32)
CONTEXTS = [np.ones((4, length), "int32") for length in range(1, LONGEST + 1)]


@jax.jit
def next_token(context):
    return jnp.argmax(jnp.tanh(TABLE[context]).mean(1) @ TABLE.T, 1)


@jax.jit
def next_token_of(buffer, length):
    known = (jnp.arange(LONGEST) < length)[None, :, None]
    return jnp.argmax(jnp.where(known, jnp.tanh(TABLE[buffer]), 0).sum(1) / length @ TABLE.T, 1)


@pytest.mark.tfperf(max_xla_compiles=0)
def test_broken(tf_profile):
    tf_profile(next_token, CONTEXTS)


@pytest.mark.tfperf(max_xla_compiles=0)
def test_fixed(tf_profile):
    def step(context):
        buffer = np.zeros((4, LONGEST), "int32")
        buffer[:, : context.shape[1]] = context
        return next_token_of(buffer, np.int32(context.shape[1]))

    tf_profile(step, CONTEXTS)
