"""TensorFlow itself: loading it, warming it up, and naming the machine it runs on."""

from __future__ import annotations

import functools
import os
import platform
import statistics
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from pytest_tfperf.errors import CaptureError


def load_tensorflow() -> Any:
    """
    The `tensorflow` module.

    Raises:
        CaptureError: If it is not installed, with the command that installs it.
    """
    try:
        import tensorflow
    except ImportError as error:
        raise CaptureError(
            f"TensorFlow cannot be imported ({error}); profiling needs it: pip install 'pytest-tfperf[tensorflow]' "
            "(or [cpu] for the smaller build without GPU support)"
        ) from error
    return tensorflow


@functools.cache
def warm_runtime() -> None:
    """Start what TensorFlow starts once per process (devices, thread pools, LLVM), so that no first step pays for it."""
    tf = load_tensorflow()
    with tf.init_scope():  # out of the graph of a tf.compat.v1.Session
        if tf.executing_eagerly():
            number = tf.constant(1.0)
            tf.function(lambda x: x + 1)(number)
            tf.function(lambda x: x + 1, jit_compile=True)(number)
    sync_devices()


def n_gpus() -> int:
    """How many GPUs TensorFlow computes on in this process."""
    return len(load_tensorflow().config.list_physical_devices("GPU"))


def takes_whole_gpus() -> bool:
    """Whether this process takes all memory of a GPU when it uses it, so that no other can."""
    if os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH", "").lower() == "true":
        return False
    config = load_tensorflow().config
    return any(
        not config.experimental.get_memory_growth(gpu)
        and not config.get_logical_device_configuration(gpu)
        for gpu in config.list_physical_devices("GPU")
    )


def sync_devices() -> None:
    """Wait until every device has done what it was given; the run of a tf.compat.v1.Session has waited already."""
    tf = load_tensorflow()
    if tf.executing_eagerly():
        tf.test.experimental.sync_devices()


def sync_cost() -> float:
    """Seconds of one device synchronisation, the median of five."""
    costs = []
    for _ in range(5):
        start = time.perf_counter()
        sync_devices()
        costs.append(time.perf_counter() - start)
    return statistics.median(costs)


def least_block() -> float:
    """Seconds that steps must take which are timed together: 20 ms at least, and 50 times a device synchronisation."""
    return max(0.02, 50 * sync_cost())


def fetch(output: Any) -> None:
    """Bring a step's output to the host, as an inference server does."""
    for tensor in load_tensorflow().nest.flatten(output):
        if hasattr(tensor, "numpy"):
            tensor.numpy()
    sync_devices()


def _accelerators(tf: Any) -> list[str]:
    names = []
    for device in tf.config.list_physical_devices():
        if device.device_type != "CPU":
            details = (
                tf.config.experimental.get_device_details(device)
                if device.device_type == "GPU"
                else {}
            )
            names.append(str(details.get("device_name", device.device_type)))
    return names


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _precision() -> str:
    try:
        import keras
    except ImportError:
        return ""
    return str(keras.config.dtype_policy().name) if hasattr(keras.config, "dtype_policy") else ""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
