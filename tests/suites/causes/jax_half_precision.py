"""
jax-ml/jax#11014, google-deepmind/jmp#47: a model in bfloat16 computes in float32.

Cause: the first line scales the rows by a NumPy array of float32, so they become float32, and each product after it too.
Remedy: give the array the type bfloat16, or cast its product. By hand: the products' types are f32, against bf16.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

EXPECTED = {
    "metric": "half_precision",
    "where": r"(?is)(dot|matmul|product).*(f32|float32)|(f32|float32).*(dot|matmul)",
    "try": r"(?i)bfloat16|bf16|astype|cast|dtype|float32 (array|operand)",
    "never": r"(?i)loss scal|larger batch",
}
SCALE = np.full(64, 0.5, "float32")
WEIGHTS = [jnp.ones((64, 64), "bfloat16") for _ in range(4)]
BATCHES = [np.ones((32, 64), "bfloat16") * number for number in range(4)]


def forward(weights, rows, scale):
    hidden = rows * scale
    for weight in weights:
        hidden = jnp.tanh(hidden @ weight)
    return hidden.mean()


@pytest.mark.tfperf(min_half_precision=0.9)
def test_broken(tf_profile):
    step = jax.jit(lambda weights, rows: forward(weights, rows, SCALE))
    tf_profile(lambda rows: step(WEIGHTS, rows), BATCHES)


@pytest.mark.tfperf(min_half_precision=0.9)
def test_fixed(tf_profile):
    step = jax.jit(lambda weights, rows: forward(weights, rows, SCALE.astype("bfloat16")))
    tf_profile(lambda rows: step(WEIGHTS, rows), BATCHES)
