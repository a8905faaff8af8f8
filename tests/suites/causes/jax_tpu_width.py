"""
tensorflow/tpu#875, pytorch/xla#6429: a model wastes most of a TPU's matrix unit, since its width is 129.

Cause: XLA pads the contracted dimension of each [129, 129] product to 256, the next multiple of 128.
Remedy: a width that is a multiple of 128. By hand: 256 / 129 * 136 / 129 = 2.1 times
the work of these products, against 1.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

EXPECTED = {
    "metric": "mxu_padding_overhead",
    "where": r"(?is)\[129,129\].*jax_tpu_width\.py:\d+|jax_tpu_width\.py:\d+.*\[129,129\]|129.*jax_tpu_width\.py:\d+",
    "try": r"(?i)129 → (128|256)|multiples? of (128|256)|128",
    "never": r"(?i)larger batch|drop_remainder",
}
BATCHES = [np.ones((128, 512), "float32") * number for number in range(4)]


@jax.jit
def forward(first, weights, rows):
    hidden = rows @ first
    for weight in weights:
        hidden = jnp.tanh(hidden @ weight)
    return hidden.mean()


def profiled(tf_profile, width):
    first, weights = jnp.ones((512, width)), [jnp.ones((width, width)) for _ in range(4)]
    tf_profile(lambda rows: forward(first, weights, rows), BATCHES)


@pytest.mark.tfperf(tpu="v5e", max_mxu_padding_overhead=0.2)
def test_broken(tf_profile):
    profiled(tf_profile, 129)


@pytest.mark.tfperf(tpu="v5e", max_mxu_padding_overhead=0.2)
def test_fixed(tf_profile):
    profiled(tf_profile, 128)
