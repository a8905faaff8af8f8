"""A job of real TensorFlow processes that train in step with each other, and serve the profiler."""

import os
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager, suppress

from helpers.processes import unused_port

TRAIN = """
import select, socket, sys
import tensorflow as tf

index, meeting, port = map(int, sys.argv[1:])
others = socket.create_connection(("127.0.0.1", meeting))
tf.profiler.experimental.server.start(port)
size = 64 + 512 * index
weights, x = tf.Variable(tf.ones((size, size))), tf.ones((size, size))
step = tf.function(lambda x: tf.reduce_sum(tf.matmul(x, weights)))
step(x)
for n in range(10**9):
    with tf.profiler.experimental.Trace("train", step_num=n, _r=1):
        others.sendall(b"x")
        if not others.recv(1):
            break
        float(step(x))
        select.select([], [], [], 0.005)  # libfaketime breaks time.sleep
"""

ALONE = {
    "TensorFlow": """
import sys, time
import tensorflow as tf

tf.profiler.experimental.server.start(int(sys.argv[1]))
step = tf.function(lambda x: tf.reduce_sum(tf.matmul(x, x)), jit_compile=True)
mark = tf.profiler.experimental.Trace
x = tf.ones((64, 64))
""",
    "JAX": """
import sys, time
import jax

jax.profiler.start_server(int(sys.argv[1]))
step = jax.jit(lambda x: (x @ x).sum())
mark = jax.profiler.StepTraceAnnotation
x = jax.numpy.ones((64, 64))
""",
}
"""Starts of jobs of one process, by framework."""
FOR_EVER = """
step(x)
print("ready", flush=True)
for n in range(10**9):
    with mark("train", step_num=n):
        float(step(x))
        time.sleep(0.005)
"""


@contextmanager
def jobs_alone(*frameworks):
    """Addresses of jobs that run for themselves, one for each of these frameworks."""
    with ExitStack() as stack:
        ports, jobs = [unused_port() for _ in frameworks], []
        for port, framework in zip(ports, frameworks, strict=True):
            command = [sys.executable, "-c", ALONE[framework] + FOR_EVER, str(port)]
            jobs.append(stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE)))
            stack.callback(jobs[-1].kill)
        assert [job.stdout.readline() for job in jobs] == [b"ready\n"] * len(jobs)
        yield [f"grpc://127.0.0.1:{port}" for port in ports]


@contextmanager
def running_job(*environments):
    """Addresses of a job's workers, one for each of these environments; the slowest is the last."""
    with ExitStack() as stack:
        meeting = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        ports = [unused_port() for _ in environments]
        for index, (port, environment) in enumerate(zip(ports, environments, strict=True)):
            arguments = [str(index), str(meeting.getsockname()[1]), str(port)]
            process = subprocess.Popen(
                [sys.executable, "-c", TRAIN, *arguments], env={**os.environ, **environment}
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        meeting.settimeout(120)
        workers = [stack.enter_context(meeting.accept()[0]) for _ in environments]
        threading.Thread(target=_meet, args=[workers], daemon=True).start()
        yield [f"grpc://127.0.0.1:{port}" for port in ports]


def _meet(workers):
    """Let the workers go on once all have come, as a collective does, until one has ended."""
    with suppress(OSError):
        while all(worker.recv(1) for worker in workers):
            for worker in workers:
                worker.sendall(b"x")
