"""A step whose first call imports the first framework of the process."""

import sys


def step():
    import keras

    return keras.ops.ones(3)


def test_a_step(tf_profile):
    assert "keras" not in sys.modules
    assert tf_profile(step, warmup=1, steps=2, trace_steps=2).step_time > 0
