"""
jax-ml/jax#22688: with `jax_enable_x64`, which one solver needs, the whole network computes in float64.

Cause: the default type of weights and rows is float64 then, and XLA has no fast convolution of that type.
Remedy: float32 for the network's arrays. By hand: 60 to 150 ms, against 4 to 8 ms.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

jax.config.update("jax_enable_x64", True)
EXPECTED = {
    "metric": "step_time",
    "where": r"(?is)(conv|dot).*(f64|float64)|(f64|float64).*conv",
    "try": r"(?i)float32|f32|x64|64 bits|32 bits",
    "never": r"(?i)larger batch|lax\.scan|outside jax\.jit",
}
IMAGES = [np.random.default_rng(number).normal(size=(16, 16, 48, 48)) for number in range(4)]


@jax.jit
def network(kernels, images):
    for kernel in kernels:
        images = jax.nn.relu(jax.lax.conv_general_dilated(images, kernel, (1, 1), "SAME"))
    return images.mean()


def profiled(tf_profile, dtype):
    kernels = [jnp.full((16, 16, 3, 3), 0.01, dtype) for _ in range(2)]
    images = [each.astype(dtype) for each in IMAGES]
    tf_profile(lambda images: network(kernels, images), images)


@pytest.mark.tfperf(max_step_time="20 ms")
def test_broken(tf_profile):
    profiled(tf_profile, "float64")


@pytest.mark.tfperf(max_step_time="20 ms")
def test_fixed(tf_profile):
    profiled(tf_profile, "float32")
