"""What JAX itself tells: its traces, devices and arrays."""

import logging

import pytest

from pytest_tfperf.frameworks.jax import Jax, _clients, _last_programs
from pytest_tfperf.frameworks.jax_traces import jax_traces_reported_to
from pytest_tfperf.function_traces import UNKNOWN

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


def test_a_pytree_that_takes_arrays_alone_is_traced_again_without_an_error():
    import jax
    import jax.numpy as jnp

    @jax.tree_util.register_pytree_node_class
    class Rows:
        def __init__(self, x):
            self.x, self.rank = x, x.ndim

        def tree_flatten(self):
            return (self.x,), None

        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*children)

    double, found = jax.jit(lambda rows: rows.x * 2), []
    with jax_traces_reported_to(lambda _, changes: found.append(changes)):
        for n in range(1, 3):
            double(Rows(jnp.ones(n)))
    [change] = found[-1]
    assert change.kind == UNKNOWN
    assert change.text.startswith("what changed is not known: comparing the arguments raised Attr")


def test_a_synchronisation_waits_for_the_devices_of_all_clients(monkeypatch):
    import jax
    from jax._src import xla_bridge

    def waited_for():
        Jax().synchronise()
        programs = _last_programs(_clients())
        return [device for _, number in programs for device in number.devices()]

    own = jax.local_devices()
    assert waited_for() == own
    other = xla_bridge.make_cpu_client()
    monkeypatch.setitem(xla_bridge._backends, "other", other)
    assert waited_for() == own + other.local_devices()
    monkeypatch.delitem(xla_bridge._backends, "other")
    assert waited_for() == own


def test_an_output_with_a_random_key_is_fetched():
    import jax
    import jax.numpy as jnp

    Jax().fetch({"key": jax.random.key(0), "loss": jnp.ones(3)})
