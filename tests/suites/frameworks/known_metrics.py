"""The metrics that a step on a CPU makes known are those that the documents say, by framework."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

from pytest_tfperf.metric_evidence import (
    ANYWHERE,
    JAX,
    KNOWN_ON,
    ON_DATASETS,
    TENSORFLOW,
    WITH_LATENCY,
)
from pytest_tfperf.metric_registry import METRICS

IDS = np.ones((32, 64), "int32") * (np.arange(64) < 48)
WEIGHTS = np.ones((64, 64), "float32")

N_BATCHES = 200
MANY = (
    20_000  # steps of JAX, some 20 µs each: several epochs and timed blocks, on a busy machine too
)
FEWER = 5_000  # steps with a dataset

OPTIONS = tf.data.Options()
OPTIONS.autotune.enabled = False  # its thread may hold up the end of each epoch for seconds

tf_step = tf.function(lambda ids: tf.cast(ids, tf.float32) @ WEIGHTS, jit_compile=True)


def batches():
    data = tf.data.Dataset.from_tensors({"ids": IDS, "mask": IDS}).repeat(N_BATCHES)
    return data.with_options(OPTIONS)


@pytest.fixture
def jax_step():
    """A function that has not been compiled, while JAX has started: its first step is traced."""
    jnp.ones(3)
    return jax.jit(lambda ids: jnp.asarray(ids, "float32") @ WEIGHTS)


def as_documented(profile, framework, *more):
    known_on = KNOWN_ON[framework].items()
    documented = {name for name, devices in known_on if devices in (ANYWHERE, *more)}
    values = {name: profile.value(name) for name in METRICS}
    known = {name for name, value in values.items() if value.number is not None}
    assert {name: values[name].why for name in documented - known} == {}
    sometimes = {name for name, devices in known_on if devices == WITH_LATENCY}
    assert known - documented <= sometimes


@pytest.mark.tfperf(target_step_time="1 ms", tpu="v5e", findings="all")
def test_jax(tf_profile, jax_step):
    data = [{"ids": IDS, "mask": IDS}] * N_BATCHES
    found = tf_profile(lambda batch: jax_step(batch["ids"]), data, steps=MANY)
    as_documented(found, JAX)


@pytest.mark.tfperf(target_step_time="1 ms", tpu="v5e")
def test_jax_on_a_dataset_of_tensorflow(tf_profile, jax_step):
    data = batches()
    found = tf_profile(lambda batch: jax_step(batch["ids"].numpy()), data, steps=FEWER)
    as_documented(found, JAX, ON_DATASETS)


@pytest.mark.tfperf(target_step_time="1 ms", tpu="v5e", findings="all")
def test_tensorflow(tf_profile):
    data = batches()
    found = tf_profile(lambda batch: tf_step(batch["ids"]), data, steps=FEWER)
    as_documented(found, TENSORFLOW)
