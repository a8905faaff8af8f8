"""ParameterServerStrategy: servers in the process of the steps, and in another one."""

import pytest

CLUSTER = """
import contextlib
import json
import socket
import sys

import tensorflow as tf

TASKS = ("worker", "ps")

def free_ports(n):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for one in sockets:
            one.bind(("localhost", 0))
        return [one.getsockname()[1] for one in sockets]

def new_cluster():
    return {task: [f"localhost:{port}"] for task, port in zip((*TASKS, "chief"), free_ports(3))}

def serve(cluster):
    spec = tf.train.ClusterSpec(cluster)
    return [
        tf.distribute.Server(spec, job_name=task, task_index=0, protocol="grpc") for task in TASKS
    ]

if __name__ == "__main__":
    servers = serve(json.loads(sys.argv[1]))
    servers[0].join()
"""
STEPS = """
import pytest
from pytest_tfperf.errors import CaptureError

RESOLVER = tf.distribute.cluster_resolver.SimpleClusterResolver(
    tf.train.ClusterSpec(CLUSTER), rpc_layer="grpc"
)
STRATEGY = tf.distribute.ParameterServerStrategy(RESOLVER)
COORDINATOR = tf.distribute.coordinator.ClusterCoordinator(STRATEGY)
with STRATEGY.scope():
    W = tf.Variable(tf.ones((16, 16)))
BATCH = tf.ones((8, 16))
FORWARD_AND_KERNEL = 2 * (2 * 8 * 16 * 16)
XLA = ("xla_clusters", "xla_launches", "xla_compiles")

@tf.function
def train(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(x @ W))
    W.assign_sub(tape.gradient(loss, W) * 1e-9)
    return loss

def wait_for(*batches):
    for x in batches:
        COORDINATOR.schedule(train, args=(x,))
    COORDINATOR.join()

def products(profile):
    return profile.value("flops").detail["matmul_and_convolution"]
"""
HERE = """
from cluster import new_cluster, serve, tf

CLUSTER = new_cluster()
SERVERS = serve(CLUSTER)
"""
IN_THIS_PROCESS = """
def test_closures_are_a_step(tf_profile):
    profile = tf_profile(lambda: wait_for(BATCH, BATCH), examples_per_step=16)
    assert products(profile) == 2 * FORWARD_AND_KERNEL
    assert profile.throughput == pytest.approx(16 / profile.step_time, rel=0.2)  # mean and median
    assert [profile.value(name).number for name in XLA] == [0, 0, 0]
    assert profile.host_overhead < 1
    # TensorFlow drops the events of cheap ops, such as the assignment, after some calls
    assert "_MklMatMul" in {op["type"] for op in profile.tables["host_ops"].records()}
    assert not any("other processes ran functions" in note for note in profile.notes)

def test_a_step_that_does_not_wait_is_refused(tf_profile):
    with pytest.raises(CaptureError, match=r"call coordinator.join\\(\\) in the step"):
        tf_profile(lambda: COORDINATOR.schedule(train, args=(BATCH,)))
    COORDINATOR.join()
    data = tf.data.Dataset.from_tensors(BATCH).repeat(500)
    with pytest.raises(CaptureError, match=r"or fetch\\(\\) the value"):
        tf_profile(lambda x: COORDINATOR.schedule(train, args=(x,)), data, name="data")
    COORDINATOR.join()
    assert tf_profile(lambda: COORDINATOR.schedule(train, args=(BATCH,)).fetch(), name="fetched")
"""
THERE = """
import subprocess
import sys
import json
from cluster import new_cluster, tf

CLUSTER = new_cluster()
SERVERS = subprocess.Popen([sys.executable, "cluster.py", json.dumps(CLUSTER)])

@pytest.fixture(scope="module", autouse=True)
def servers():
    yield
    SERVERS.kill()
    SERVERS.wait()
"""
IN_ANOTHER_PROCESS = """
HIDDEN = ("input_bound", "input_wait", "host_overhead", "fusions", "peak_memory", "xla_coverage")

def check_hidden(profile, *names):
    assert {profile.value(name).number for name in names} == {None}
    assert {profile.value(name).why for name in names} == {WHY}
    assert any(note.startswith(WHY) for note in profile.notes)

WHY = (
    "other processes ran functions of the step (train), and the trace shows the work of this one "
    "only"
)

def test_what_the_trace_lacks_is_unknown(tf_profile):
    profile = tf_profile(lambda: wait_for(BATCH), name="join")
    check_hidden(profile, *XLA, *HIDDEN, "device_busy", "collective_time", "step_skew")
    assert products(profile) == FORWARD_AND_KERNEL
    assert profile.step_time > 0
    assert profile.retraces == 0
    assert profile.graph_ops > 0

def test_the_input_of_the_coordinator_is_known(tf_profile):
    data = tf.data.Dataset.from_tensors(tf.ones(16)).repeat().batch(8, drop_remainder=True)
    profile = tf_profile(wait_for, data)
    check_hidden(profile, *XLA, "host_overhead")
    assert 0 <= profile.input_bound < 1
    assert profile.throughput == pytest.approx(8 / profile.step_time, rel=0.2)  # mean and median
    assert products(profile) == FORWARD_AND_KERNEL

def test_the_input_of_the_workers_is_not(tf_profile):
    iterator = iter(COORDINATOR.create_per_worker_dataset(
        lambda: tf.data.Dataset.from_tensors(tf.ones(16)).repeat().batch(8, drop_remainder=True)
    ))
    step = tf.function(lambda batches: train(next(batches)))

    def one():
        COORDINATOR.schedule(step, args=(iterator,))
        COORDINATOR.join()

    profile = tf_profile(one)
    assert profile.value("input_bound").number is None
    assert products(profile) == FORWARD_AND_KERNEL

def test_trace(tf_profile):
    with tf_profile.trace() as trace:
        for _ in range(5):
            with trace.step():
                wait_for(BATCH)
    profile = tf_profile.profile
    check_hidden(profile, *XLA, *HIDDEN)
    assert len(profile.steps) == 5
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("body", "passed"),
    [
        (HERE + STEPS + IN_THIS_PROCESS, 2),
        ("import pytest" + THERE + STEPS + IN_ANOTHER_PROCESS, 4),
    ],
    ids=["this process", "another process"],
)
def test_scheduled_steps(pytester, processes, body, passed):
    pytester.makepyfile(cluster=CLUSTER, test_steps=body)
    pytester.runpytest_subprocess("-Wignore").assert_outcomes(passed=passed)
