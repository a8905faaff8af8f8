"""
patrick-kidger/equinox#928, jax-ml/jax#5485, #29470: a call of a compiled function with a deep module takes long in Python.

Cause: each call flattens 301 module objects by a Python function, which takes longer than the model.
Remedy: flatten once, and pass the list of arrays. By hand: 302 Python calls a step, against 1.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

EXPECTED = {
    "metric": "python_calls",
    "where": r"(?is)flatten.*|jax_module_overhead\.py:\d+.*flatten",
    "try": r"(?i)flatten|tree\.leaves|(list|tuple|dict) of arrays|pytree|once, outside",
    "never": r"(?i)larger batch|eager",
}
BATCHES = [np.ones((4, 8), "float32") * number for number in range(4)]


class Module:
    """A tree of modules, as equinox and flax have them."""

    def __init__(self, *parts):
        self.parts = parts


def flatten(module):
    return tuple(module.parts), type(module).__name__


def unflatten(_, parts):
    return Module(*parts)


jax.tree_util.register_pytree_node(Module, flatten, unflatten)


def model():
    return Module(*[Module(Module(jnp.eye(8)), Module(jnp.zeros(8))) for _ in range(100)])


def forward(module, rows):
    total = sum(
        layer.parts[0].parts[0].sum() + layer.parts[1].parts[0].sum() for layer in module.parts
    )
    return jnp.mean(rows) * total


@pytest.mark.tfperf(max_python_calls=100)
def test_broken(tf_profile):
    module, compiled = model(), jax.jit(forward)
    tf_profile(lambda rows: compiled(module, rows), BATCHES)


@pytest.mark.tfperf(max_python_calls=100)
def test_fixed(tf_profile):
    leaves, structure = jax.tree.flatten(model())
    compiled = jax.jit(lambda leaves, rows: forward(jax.tree.unflatten(structure, leaves), rows))
    tf_profile(lambda rows: compiled(leaves, rows), BATCHES)
