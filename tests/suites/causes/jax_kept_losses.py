"""
markean/aimz#268, jax-ml/jax#5605: the memory grows in each step, since the history keeps device arrays.

Cause: a list keeps the step's outputs, an array of 64 KiB for each step.
Remedy: keep numbers (`float`, or a mean), not arrays, or drop old ones. By hand: 64 KiB a step, against about none.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

EXPECTED = {
    "metric": "memory_growth",
    "where": r"(?is)ArrayImpl|jax\.Array|jax array|f32\[128,128\]|float32\[128,128\]|jax_kept_losses\.py:\d+",
    "try": r"(?i)float|number|np\.asarray|scalar|(list|history|attribute|reference).*(keep|hold|drop|clear)|(keep|hold|drop|clear).*(list|history|array|reference)",
    "never": r"(?i)donat|retrac",
}
BATCHES = [np.ones((128, 128), "float32") * number for number in range(4)]


@jax.jit
def errors(rows):
    return jnp.tanh(rows) ** 2


@pytest.mark.tfperf(max_memory_growth="16 KiB")
def test_broken(tf_profile):
    history = []

    def step(rows):
        history.append(errors(rows))
        return history[-1]

    tf_profile(step, BATCHES, steps=400)


@pytest.mark.tfperf(max_memory_growth="16 KiB")
def test_fixed(tf_profile):
    history = []

    def step(rows):
        found = errors(rows)
        history.append(float(found.mean()))
        return found

    tf_profile(step, BATCHES, steps=400)
