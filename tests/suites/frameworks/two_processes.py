"""Two processes of two devices each that run one program of JAX together, each with a profile of its own."""

import os
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pytest_tfperf.frameworks.jax import Jax

jax.config.update("jax_cpu_collectives_implementation", "gloo")


@pytest.fixture(scope="module")
def rows():
    """Rows of an array, spread over the devices of both processes."""
    jax.distributed.initialize(os.environ["ADDRESS"], 2, int(os.environ["PROCESS"]))
    assert jax.process_count() == jax.local_device_count() == 2
    return NamedSharding(Mesh(np.array(jax.devices()), ("all",)), PartitionSpec("all"))


def test_all_devices_are_waited_for(rows):
    def long(x):
        return jax.lax.fori_loop(0, 40, lambda _, y: jnp.einsum("bij,bjk->bik", y, x) / 1e3, x)

    x = jax.make_array_from_process_local_data(rows, np.ones((4, 300, 300), "float32"))
    for function in (jax.jit(long), jax.jit(lambda x: jnp.sum(long(x)))):
        function(x).block_until_ready()
        Jax().synchronise()
        output = function(x)
        Jax().synchronise()
        time.sleep(
            0.01
        )  # it is marked some microseconds after the devices are free; it takes 100 ms
        assert output.is_ready()


def test_steps_that_wait_for_each_other(tf_profile, rows):
    x = jax.make_array_from_process_local_data(rows, np.ones((4, 8), "float32"))
    total = jax.jit(lambda x: jnp.sum(x * 2))
    found = tf_profile(lambda: total(x), warmup=3, steps=12, trace_steps=6)
    assert found.step_time > 0
    assert found.xla_compiles == 0
