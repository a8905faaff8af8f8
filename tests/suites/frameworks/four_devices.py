"""Steps of JAX on four CPU devices: whole programs on each, and programs of all of them."""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pytest_tfperf.frameworks.in_use import synchronise

FEW = {"warmup": 3, "steps": 12, "trace_steps": 6}
ROWS = np.ones((64, 64), "float32")


@pytest.fixture
def rows():
    return NamedSharding(Mesh(np.array(jax.devices()), ("rows",)), PartitionSpec("rows"))


def test_pmap_runs_a_program_on_each_device(tf_profile):
    product, batches = jax.pmap(lambda x: x @ x), np.ones((4, 16, 16), "float32")
    found = tf_profile(lambda: product(batches), **FEW)
    assert (found.xla_launches, found.eager_ops, found.flops) == (4, 0, 4 * 2 * 16**3)


@pytest.mark.tfperf(tpu="v5e")
def test_a_program_of_all_devices_is_their_work(tf_profile, rows):
    x, product = jax.device_put(ROWS, rows), jax.jit(lambda x, y: x @ y)
    found = tf_profile(lambda: product(x, ROWS), **FEW)
    assert (found.xla_launches, found.eager_ops, found.flops) == (4, 0, 2 * 64**3)
    assert found.host_device_copies == 1  # the array ROWS, to four devices
    assert found.value("flops").detail["of_platform"]
    assert "jit(<lambda>) runs on 4 devices" in found.value("padding_overhead").why


def test_all_executions_of_a_program_with_a_sum_are_in_its_step(tf_profile, rows):
    x, product = jax.device_put(ROWS, rows), jax.jit(lambda x: (x.T @ x).sum())
    found = tf_profile(lambda: product(x), **FEW)
    value = found.value("xla_launches")
    assert (value.number, "low" in value.detail) == (4, False)


def test_a_sum_over_devices_may_run_in_many_steps(tf_profile, rows):
    """XLA ends a process that has some 32 calls of it unfinished."""
    x, mean = jax.device_put(ROWS, rows), jax.jit(lambda x: x - jnp.mean(x @ x))
    found = tf_profile(lambda: mean(x), warmup=100, steps=200, trace_steps=50)
    assert (found.xla_launches, found.eager_ops) == (4, 0)


def test_another_device_than_the_first(tf_profile):
    x, product = jax.device_put(ROWS, jax.devices()[2]), jax.jit(lambda x: x @ x)
    found = tf_profile(lambda: product(x), **FEW)
    assert (found.xla_launches, found.flops) == (1, 2 * 64**3)


def test_devices_are_waited_for(rows):
    x = jax.device_put(np.ones((1024, 1024), "float32"), rows)
    product = jax.jit(lambda x: jnp.tanh(x.T @ x).sum())
    each = [jax.device_put(np.ones((1000, 1000), "float32"), one) for one in jax.devices()]
    orders = [x, *each], [*each, x]
    jax.block_until_ready([product(one) for one in orders[0]])
    synchronise()  # all programs are compiled now
    for calls in orders:  # the program of all devices is the first, then the last
        running = [product(one) for one in calls]
        synchronise()
        assert all(one.is_ready() for one in running)
