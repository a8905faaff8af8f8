"""What JAX itself tells: its traces, devices and arrays."""

import logging

import pytest

from pytest_tfperf.frameworks.jax_traces import jax_traces_reported_to

pytestmark = pytest.mark.imports("jax")


def test_traces_under_a_derivative_are_reported_whatever_the_log_shows(caplog):
    import jax
    import jax.numpy as jnp

    def traced():
        loss, found = jax.jit(lambda x: jnp.sum(x * x)), []
        with jax_traces_reported_to(lambda name, _: found.append(name)) as watched:
            for n in range(1, 4):
                jax.grad(loss)(jnp.ones(n))
        return watched, found.count("<lambda>")

    parent = logging.getLogger("jax")
    assert traced() == (True, 3)
    before = parent.level
    try:
        parent.setLevel(logging.ERROR)
        assert traced() == (True, 3)
    finally:
        parent.setLevel(before)
    logging.disable(logging.WARNING)
    try:
        assert traced() == (True, 3)
    finally:
        logging.disable(logging.NOTSET)
    assert "CACHE MISS" not in caplog.text
    jax.config.update("jax_explain_cache_misses", True)
    try:
        assert traced() == (True, 3)
    finally:
        jax.config.update("jax_explain_cache_misses", False)
    assert "TRACING CACHE MISS" in caplog.text
