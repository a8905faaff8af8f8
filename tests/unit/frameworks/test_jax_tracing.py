"""Versions of JAX whose explanations are read."""

from pytest_tfperf.frameworks.jax_tracing import explains_first


def test_jax_explains_first_from_0_9_on():
    for version, first in [
        ("0.8.3", False),
        ("0.9.0", True),
        ("0.9.0.1", True),
        ("0.10.2", True),
        ("1.0.0", True),
    ]:
        assert explains_first(version) == first, version
