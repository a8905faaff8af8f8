"""Steps on two devices under JAX's switches of debugging: the plugin's own work obeys none of them."""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import numpy as np
import pytest

FEW = {"warmup": 3, "steps": 12, "trace_steps": 6}
METRICS = ("flops", "xla_launches", "eager_ops", "host_device_copies", "retraces", "xla_compiles")
w, x = jax.device_put(np.ones((64, 64), "float32")), jax.device_put(np.ones((8, 64), "float32"))
step = jax.jit(lambda x: jnp.tanh(x @ w))
COMPILED = [2 * 8 * 64 * 64 + 8 * 64, 1, 0, 0, 0, 0]
EAGER = [2 * 8 * 64 * 64 + 8 * 64, 2, 2, 0, 0, 0]

# the first profile of this process compiles what the plugin runs itself
IS_EAGER = os.environ["SWITCH"] == "disable_jit"
OF_PROCESS = {
    "jax_transfer_guard": "disallow_explicit",
    "jax_debug_nans": True,
    "jax_debug_infs": True,
    "jax_check_tracer_leaks": True,
    "jax_numpy_rank_promotion": "raise",
    "jax_numpy_dtype_promotion": "strict",
    "jax_enable_checks": True,
}
SET = {"guards": OF_PROCESS, "disable_jit": {"jax_disable_jit": True}, "contexts": {}}
for name, value in SET[os.environ["SWITCH"]].items():
    jax.config.update(name, value)


def counted(tf_profile, name, **how):
    found = tf_profile(lambda: step(x), name=name, **how, **FEW)
    values = [found.value(metric) for metric in METRICS]
    assert not any("low" in value.detail for value in values), name
    return [value.number for value in values]


@pytest.mark.parametrize("latency", [False, True])
def test_switches_of_the_process(tf_profile, latency):
    assert counted(tf_profile, "step", latency=latency) == (EAGER if IS_EAGER else COMPILED)


@pytest.mark.skipif(os.environ["SWITCH"] != "contexts", reason="switches of the process are on")
def test_switches_of_a_context(tf_profile):
    rows = {
        "disable_jit": (jax.disable_jit, EAGER),
        "debug_nans": (lambda: jax.debug_nans(True), COMPILED),
        "default_device": (lambda: jax.default_device(jax.devices()[1]), COMPILED),
        "compile_time": (jax.ensure_compile_time_eval, COMPILED),
        "transfer_guard": (lambda: jax.transfer_guard("disallow_explicit"), COMPILED),
    }
    for name, (switch, expected) in rows.items():
        with switch():
            assert counted(tf_profile, name) == expected, name


@pytest.mark.skipif(not hasattr(jax, "set_mesh"), reason="this JAX sets no mesh")
def test_a_mesh_that_is_set(tf_profile):
    mesh = jax.make_mesh((2,), ("x",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    with jax.transfer_guard("allow"):
        sharded = jax.device_put(np.ones((8, 8), "float32"), rows)
    tanh = jax.jit(jnp.tanh)
    with jax.set_mesh(mesh), jax.disable_jit(False):
        found = tf_profile(lambda: tanh(sharded), name="mesh", **FEW)
    assert (found.xla_launches, found.host_device_copies) == (2, 0)
