"""MirroredStrategy on two devices, into which TensorFlow splits the CPU once in a process."""

import pytest

FIT = """
@pytest.mark.tfperf(max_flops="1 MFLOP", max_half_precision=0)
def test_fit(tf_profile):
    with STRATEGY.scope():
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    profile = tf_profile.fit(model, np.ones((2000, 8)), np.ones((2000, 1)), batch_size=20, verbose=0)
    forward_and_kernel = 2 * 2 * 20 * (8 * 16 + 16)
    assert products(profile) == forward_and_kernel + 2 * 20 * 16
"""
LOOP = """
def test_loop(tf_profile):
    with STRATEGY.scope():
        w = tf.Variable(tf.ones((16, 16)))

    def replica(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(x @ w))
        gradient = tape.gradient(loss, w)
        w.assign_sub(tf.distribute.get_replica_context().all_reduce("sum", gradient) * 1e-9)

    step = tf.function(lambda x: STRATEGY.run(replica, (x,)))
    data = tf.data.Dataset.from_tensors(tf.ones(16)).repeat().batch(8, drop_remainder=True)
    profile = tf_profile(step, STRATEGY.experimental_distribute_dataset(data))
    assert products(profile) == 2 * (2 * 8 * 16 * 16)
    first, second = (one.numpy() for one in w.values)
    assert (first == second).all()
    assert 0.9 < first.min() < 1
"""


@pytest.mark.slow
def test_flops_are_those_of_all_replicas(pytester):
    pytester.makepyfile(
        f"""
import keras
import numpy as np
import pytest
import tensorflow as tf

CPU = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(CPU, [tf.config.LogicalDeviceConfiguration()] * 2)
STRATEGY = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

def products(profile):
    return profile.value("flops").detail["matmul_and_convolution"]
{FIT}
{LOOP}
"""
    )
    pytester.runpytest_subprocess("-Wignore").assert_outcomes(passed=2)
