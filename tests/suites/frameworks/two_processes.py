"""Two processes that run one program of JAX together, each with a profile of its own."""

import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

jax.config.update("jax_cpu_collectives_implementation", "gloo")


def test_steps_that_wait_for_each_other(tf_profile):
    jax.distributed.initialize(os.environ["ADDRESS"], 2, int(os.environ["PROCESS"]))
    mesh = Mesh(np.array(jax.devices()), ("all",))
    rows = NamedSharding(mesh, PartitionSpec("all"))
    x = jax.make_array_from_process_local_data(rows, np.ones((4, 8), "float32"))
    total = jax.jit(lambda x: jnp.sum(x * 2))
    found = tf_profile(lambda: total(x), warmup=3, steps=12, trace_steps=6)
    assert jax.process_count() == 2
    assert found.step_time > 0
    assert found.xla_compiles == 0
