"""Steps of JAX whose programs the process may load from the persistent compilation cache."""

import json
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

CACHE = Path(os.environ["CACHE"])
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
WORK = ("flops", "fusions", "half_precision", "peak_memory", "xla_compiles", "xla_launches")


@jax.jit
def alone(x):
    return jnp.tanh(x @ x.T).sum()


@jax.jit
def of_two_shapes(x):
    return jnp.tanh(x @ x.T).sum()


def numbers(found, metrics):
    return {metric: found.value(metric).number for metric in metrics}


def test_programs(tf_profile):
    batches = [np.ones((rows, 4), "float32") for rows in (8, 8, 5)]
    found = {
        "alone": numbers(tf_profile(alone, batches[:1] * 4, name="alone"), WORK),
        "two": numbers(
            tf_profile(of_two_shapes, batches, name="two"),
            ("peak_memory", "xla_compiles", "xla_launches"),
        ),
        "entries": sorted(path.name.partition("-")[0] for path in CACHE.iterdir()),
    }
    CACHE.with_name("found.json").write_text(json.dumps(found))
