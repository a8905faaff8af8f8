"""Limits on a step of JAX: one test keeps them, one breaks them."""

import jax
import numpy as np
import pytest

FEW = {"warmup": 1, "steps": 4, "trace_steps": 3}


@pytest.mark.tfperf(max_retraces=0, max_xla_compiles=0, xla_launches=1)
def test_one_shape(tf_profile):
    double = jax.jit(lambda x: x * 2)
    profile = tf_profile(double, [np.ones(3, "float32")] * 8, **FEW)
    assert profile.step_time > 0
    assert profile.flops == 3


@pytest.mark.tfperf(max_retraces=0)
def test_another_shape_in_each_step(tf_profile):
    double = jax.jit(lambda x: x * 2)
    tf_profile(double, [np.ones(n, "float32") for n in range(1, 9)], **FEW)
