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
    assert profile.workload["batch"] == 20
    assert profile.workload["replicas"] == 2
    assert profile.value("throughput").detail["examples_per_step"] == 20
    assert collectives(profile) == 2  # the strategy packs the gradients of all four variables
"""
LOOP = """
def training():
    with STRATEGY.scope():
        w = tf.Variable(tf.ones((16, 16)))

    def replica(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(x @ w))
        gradient = tape.gradient(loss, w)
        w.assign_sub(tf.distribute.get_replica_context().all_reduce("sum", gradient) * 1e-9)

    return w, tf.function(lambda x: STRATEGY.run(replica, (x,)))

def batches():
    return tf.data.Dataset.from_tensors(tf.ones(16)).repeat(22 * 8).batch(8, drop_remainder=True)

FORWARD_AND_KERNEL = 2 * (2 * 8 * 16 * 16)

def check(profile, beside=0):
    assert products(profile) == FORWARD_AND_KERNEL
    assert profile.workload["inputs"] == ["float32[4,16]"]
    assert (profile.workload["batch"], profile.workload["replicas"]) == (8, 2)
    assert profile.value("throughput").detail["examples_per_step"] == 8
    assert 2 - beside <= collectives(profile) <= 2
    assert "dummy_file_name" not in profile.value("half_precision").detail["where"]

def test_loop(tf_profile):
    w, step = training()
    profile = tf_profile(step, STRATEGY.experimental_distribute_dataset(batches().repeat()))
    check(profile)
    assert profile.value("epoch_gap").why == "no epoch ended in the timed window"
    unknown = [profile.value(name) for name in ("step_skew", "collective_time", "device_busy")]
    assert all(value.number is None and value.why for value in unknown)
    first, second = (one.numpy() for one in w.values)
    assert (first == second).all()
    assert 0.9 < first.min() < 1

def test_own_loop_of_short_epochs(tf_profile):
    _, step = training()
    for x in tf_profile.steps(STRATEGY.experimental_distribute_dataset(batches())):
        step(x)
    profile = tf_profile.profile
    check(profile, beside=0.1)  # an event may lie between two epochs
    detail = profile.value("epoch_gap").detail
    assert detail["iter_s"] > 0
    assert "iter() of the data" in detail["where"]
    (note,) = (note for note in profile.notes if "passed between epochs" in note)
    assert "before a strategy distributes it" in note

def test_trace(tf_profile):
    _, step = training()
    with tf_profile.trace():
        for x in STRATEGY.experimental_distribute_dataset(batches()):
            step(x)
    profile = tf_profile.profile
    assert len(profile.steps) == 22
    assert profile.value("flops").number is None  # a bare trace knows no shapes
    assert profile.value("step_time").number is None
    assert profile.eager_ops == 0
"""


@pytest.mark.full
def test_metrics_are_those_of_all_replicas(pytester, processes):
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

def collectives(profile):
    "The collective ops of a step, of all replicas."
    ops = profile.tables["host_ops"].records()
    return sum(op["occurrences"] for op in ops if op["type"] == "CollectiveReduceV2")
{FIT}
{LOOP}
"""
    )
    pytester.runpytest_subprocess("-Wignore").assert_outcomes(passed=4)
