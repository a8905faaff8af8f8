"""JAX whose first device starts in a test that has only the marker, beside TensorFlow."""

import jax
import numpy as np
import pytest
import tensorflow as tf

tf_step = tf.function(lambda x: x @ x)


@pytest.mark.tfperf(max_retraces=0)
@pytest.mark.parametrize("started", [False, True])
def test_alone(started):
    step = jax.jit(lambda x: x.sum())
    for size in range(1, 4):
        step(np.ones(size))
