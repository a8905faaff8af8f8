"""Sessions of the profiler over marked sample steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_tfperf.capture.sessions import Session, StepMark, read_sessions
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.framework import JAX, TENSORFLOW
from pytest_tfperf.frameworks.in_use import start_devices, synchronise
from pytest_tfperf.frameworks.jax import load_jax
from pytest_tfperf.frameworks.tensorflow import load_tensorflow
from pytest_tfperf.trace.xspace import Trace


def convolution_step(framework: str) -> Callable[[], Any]:
    """
    Return a training step of a small convolutional network: some milliseconds on a few cores.

    Args:
        framework: Name of the framework that runs it.
    """
    return _STEPS[framework]()


def _step_of_tensorflow() -> Callable[[], Any]:
    tf = load_tensorflow()
    kernels = [tf.Variable(tf.random.stateless_normal(shape, (3, 4)) * 0.05) for shape in _KERNELS]
    images = tf.random.stateless_normal(_IMAGES, (5, 6))

    def step() -> Any:
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(tf.nn.conv2d(images, kernels[0], 2, "SAME"))
            loss = tf.reduce_mean(tf.nn.conv2d(hidden, kernels[1], 1, "SAME") ** 2)
        for kernel, gradient in zip(kernels, tape.gradient(loss, kernels), strict=True):
            kernel.assign_sub(0.01 * gradient)
        return loss

    compiled: Callable[[], Any] = tf.function(step, autograph=False)
    return compiled


def _step_of_jax() -> Callable[[], Any]:
    jax = load_jax()
    state = [[jax.random.normal(jax.random.key(3), shape) * 0.05 for shape in _KERNELS]]
    images = jax.random.normal(jax.random.key(5), _IMAGES)

    def convolved(images: Any, kernel: Any, stride: int) -> Any:
        layout = ("NHWC", "HWIO", "NHWC")
        strides = (stride, stride)
        return jax.lax.conv_general_dilated(
            images, kernel, strides, "SAME", dimension_numbers=layout
        )

    def loss(kernels: Any) -> Any:
        hidden = jax.nn.relu(convolved(images, kernels[0], 2))
        return (convolved(hidden, kernels[1], 1) ** 2).mean()

    def update(kernels: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(kernels)
        return value, [k - 0.01 * g for k, g in zip(kernels, gradients, strict=True)]

    compiled = jax.jit(update)

    def step() -> Any:
        value, state[0] = compiled(state[0])
        return value

    return step


_IMAGES = (32, 32, 32, 3)
_KERNELS = ((3, 3, 3, 32), (3, 3, 32, 32))
_STEPS = {TENSORFLOW: _step_of_tensorflow, JAX: _step_of_jax}


def record_steps(framework: str, step: Callable[[], Any], n_steps: int, folder: Path) -> Trace:
    """
    Return the trace of a session over marked steps.

    Args:
        framework: Name of the framework that runs the step, and has run it.
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
        synchronise()
        return read_sessions(session.stop())[framework]
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
