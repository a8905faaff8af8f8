"""TensorFlow's runtime: import, warm up, synchronise, fetch, and its devices."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pytest_tfperf.errors import CaptureError

__tracebackhide__ = True

OLDEST = (2, 18)
"""The oldest TensorFlow whose traces show what XLA runs on a CPU."""
DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tf-nightly", "tf-nightly-cpu")
"""Names under which builds of TensorFlow are installed."""


def load_tensorflow() -> Any:
    """
    Import the `tensorflow` module.

    Raises:
        CaptureError: If it is not installed, with the command that installs it, or too old.
    """
    try:
        import tensorflow
    except ImportError as error:
        raise CaptureError(
            f"TensorFlow cannot be imported ({error}); profiling needs it: pip install "
            "tensorflow (or tensorflow-cpu, the smaller build without GPU support)"
        ) from None
    if why := too_old(str(getattr(tensorflow, "__version__", ""))):
        raise CaptureError(why)
    return tensorflow


def installed_version() -> str:
    """Return TensorFlow's version without importing it, empty if it is not known."""
    if "tensorflow" in sys.modules:
        return str(getattr(sys.modules["tensorflow"], "__version__", ""))
    for name in DISTRIBUTIONS:
        with suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return ""


def too_old(version: str) -> str | None:
    """Return why a version of TensorFlow is refused, or None; an unknown one is not refused."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) >= OLDEST:
        return None
    return (
        f"pytest-tfperf needs TensorFlow {'.'.join(map(str, OLDEST))} or newer, and this is "
        f"{version}, whose traces do not show what XLA runs on a CPU"
    )


@contextmanager
def unseen() -> Iterator[None]:
    """
    Hide the ops of the context from callbacks, such as those of `tf.debugging`.

    These would check and dump our ops, and add ops of their own that XLA cannot compile.
    """
    if "tensorflow" not in sys.modules:
        yield
        return
    # private: the list of this thread's callbacks (2.18 to 2.22)
    from tensorflow.python.eager import context

    callbacks = context.context().op_callbacks
    hidden = list(callbacks)
    callbacks.clear()
    try:
        yield
    finally:
        callbacks[:] = hidden


@functools.cache
@unseen()
def start_devices() -> None:
    """Start devices and thread pools once per process."""
    tf = load_tensorflow()
    function = tf.function(lambda x: x + 1)
    if executes_eagerly():
        with tf.init_scope():
            function(tf.constant(1.0))
    sync_devices()  # which needs the function, if it runs asynchronously


def executes_eagerly() -> bool:
    """Return whether TensorFlow executes eagerly outside of functions, as it does by default."""
    tf = load_tensorflow()
    with tf.init_scope():  # stays in the graph of a tf.compat.v1.Session
        return bool(tf.executing_eagerly())


@unseen()
def run_compiled() -> None:
    """Compile a small function with XLA and run it."""
    tf = load_tensorflow()
    with tf.init_scope():
        number = tf.constant(1.0)
        # tf.config.run_functions_eagerly does not apply to a concrete function
        function = tf.function(lambda x: x + 1, jit_compile=True).get_concrete_function(number)
        function(number)
    sync_devices()


def n_gpus() -> int:
    """Return the number of GPUs that TensorFlow uses in this process."""
    return len(load_tensorflow().config.list_physical_devices("GPU"))


def gpu_bytes() -> int | None:
    """Return the bytes that TensorFlow's allocators hold on GPUs, or None without GPUs."""
    n = n_gpus()
    if not n:
        return None
    info = load_tensorflow().config.experimental.get_memory_info
    return sum(int(info(f"GPU:{number}")["current"]) for number in range(n))


def tensor_bytes() -> int | None:
    """Return the bytes that the CPU's allocator has given out; only oneDNN's (mklcpu) tells."""
    try:
        return int(load_tensorflow().config.experimental.get_memory_info("CPU:0")["current"])
    except Exception:  # ValueError without statistics, or what a damaged context raises
        return None


def takes_whole_gpus() -> bool:
    """Return whether this process takes all memory of a GPU, which then no other can use."""
    if os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH", "").lower() == "true":
        return False
    config = load_tensorflow().config
    return any(
        not config.experimental.get_memory_growth(gpu)
        and not config.get_logical_device_configuration(gpu)
        for gpu in config.list_physical_devices("GPU")
    )


@unseen()
def sync_devices() -> None:
    """Wait for all devices; a tf.compat.v1.Session waits for them itself."""
    tf = load_tensorflow()
    if not tf.executing_eagerly():
        return
    try:
        tf.test.experimental.sync_devices()
    except tf.errors.InternalError:  # in a cluster of collectives it looks for remote eager workers
        _sync_own_gpus(tf)


def _sync_own_gpus(tf: Any) -> None:
    """Wait for the GPUs of this process: a copy to the host ends after what was enqueued before."""
    own = tf.constant(0).device.partition("/device:")[0]
    for gpu in tf.config.list_logical_devices("GPU"):
        if gpu.name.startswith(f"{own}/"):
            with tf.device(gpu.name):
                (tf.constant(0) + 1).numpy()


def fetch(output: Any) -> None:
    """Copy a step's output to the host, as an inference server does."""
    for tensor in load_tensorflow().nest.flatten(output):
        if hasattr(tensor, "numpy"):
            tensor.numpy()
    sync_devices()


def precision() -> str:
    """Return the name of the dtype policy of `tf.keras`, empty without Keras."""
    try:
        keras = load_tensorflow().keras
        policy = getattr(keras, "config", None)
        if policy is None:  # Keras 2
            return str(keras.mixed_precision.global_policy().name)
        return str(policy.dtype_policy().name)
    except (ImportError, AttributeError):
        return ""
