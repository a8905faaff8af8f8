"""Sessions of the profiler over marked sample steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_tfperf.capture.sessions import Session, StepMark, read_sessions
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.in_use import start_devices
from pytest_tfperf.frameworks.interface import TENSORFLOW
from pytest_tfperf.frameworks.tensorflow_runtime import load_tensorflow, sync_devices
from pytest_tfperf.trace.xspace import Trace


def convolution_step() -> Callable[[], Any]:
    """Return a training step of a small convolutional network: some milliseconds on a few cores."""
    tf = load_tensorflow()
    kernels = [
        tf.Variable(tf.random.stateless_normal(shape, (3, 4)) * 0.05)
        for shape in ((3, 3, 3, 32), (3, 3, 32, 32))
    ]
    images = tf.random.stateless_normal((32, 32, 32, 3), (5, 6))

    def step() -> Any:
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(tf.nn.conv2d(images, kernels[0], 2, "SAME"))
            loss = tf.reduce_mean(tf.nn.conv2d(hidden, kernels[1], 1, "SAME") ** 2)
        for kernel, gradient in zip(kernels, tape.gradient(loss, kernels), strict=True):
            kernel.assign_sub(0.01 * gradient)
        return loss

    compiled: Callable[[], Any] = tf.function(step, autograph=False)
    return compiled


def record_steps(step: Callable[[], Any], n_steps: int, folder: Path) -> Trace:
    """
    Return the trace of a session over marked steps.

    Args:
        step: The step.
        n_steps: How often it runs.
        folder: A folder for the trace.

    Raises:
        CaptureError: If the profiler cannot start.
        TraceError: If it has written no trace that can be read.
    """
    start_devices()
    session = Session(folder)
    try:
        for n in range(n_steps):
            mark = StepMark("doctor", n)
            step()
            mark.end()
        sync_devices()
        return read_sessions(session.stop())[TENSORFLOW]
    finally:
        session.discard()


def refuses_second(folder: Path) -> bool:
    """Return whether a session is refused while another runs; else one would lose events."""
    first = Session(folder)
    try:
        Session(folder).discard()
    except CaptureError:
        return True
    finally:
        first.discard()
    return False
