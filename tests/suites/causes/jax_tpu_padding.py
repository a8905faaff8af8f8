"""
google/flax#1733, jax-ml/jax#7502: an array of 3 coordinates for each point takes 32 to 128 times its size on a TPU.

Cause: the last dimension is 3, and a tile has 128 lanes.
Remedy: the long dimension last, `[3, points]`. By hand: 128 / 3 = 42.7 times the bytes, against 8 / 3.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

EXPECTED = {
    "metric": "padding_overhead",
    "where": r"(?is)\[4096,3\].*(128|42|jax_tpu_padding\.py:\d+)|(128|42|jax_tpu_padding\.py:\d+).*\[4096,3\]",
    "try": r"(?i)transpos|last|minor|multiples? of 128|swap|merge",
    "never": r"(?i)drop_remainder|larger batch",
}
BATCHES = [np.ones((4096, 3), "float32") * number for number in range(4)]


def lengths(points, axis):
    moved = jnp.tanh(points * 2 + 1)
    return jnp.sort(moved, 1 - axis)


@pytest.mark.tfperf(tpu="v5e", max_padding_overhead=5.0)
def test_broken(tf_profile):
    tf_profile(jax.jit(lambda points: lengths(points, 1)), BATCHES)


@pytest.mark.tfperf(tpu="v5e", max_padding_overhead=5.0)
def test_fixed(tf_profile):
    tf_profile(jax.jit(lambda points: lengths(points, 0)), [np.ascontiguousarray(rows.T) for rows in BATCHES])
