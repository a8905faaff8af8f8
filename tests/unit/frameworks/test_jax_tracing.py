"""Versions of JAX whose explanations are read."""

import pytest

from pytest_tfperf.frameworks.jax_tracing import explains_first


@pytest.mark.parametrize(
    ("version", "first"),
    [("0.8.3", False), ("0.9.0", True), ("0.9.0.1", True), ("0.10.2", True), ("1.0.0", True)],
)
def test_jax_explains_first_from_0_9_on(version, first):
    assert explains_first(version) == first
