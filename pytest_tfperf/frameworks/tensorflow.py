"""TensorFlow: import, devices, profiler and marks."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.framework import TENSORFLOW, Annotation, Framework, at_least
from pytest_tfperf.values import Unknown

__tracebackhide__ = True

OLDEST = (2, 18)
"""The oldest TensorFlow whose traces show what XLA runs on a CPU."""
_FULL = "TensorFlow gives this process all memory of the GPU: set TF_FORCE_GPU_ALLOW_GROWTH=true"
DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tf-nightly", "tf-nightly-cpu")
"""Names under which builds of TensorFlow are installed."""


def loaded_tensorflow() -> Any | None:
    """Return the module `tensorflow` if something has imported it."""
    return sys.modules.get("tensorflow")


def load_tensorflow() -> Any:
    """Import TensorFlow; CaptureError, with the command that installs it, if missing or too old."""
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


def leave_thread_pools() -> None:
    """Let calls that set the sizes of TensorFlow's thread pools have no effect from now on."""
    threading = load_tensorflow().config.threading
    for name in ("set_intra_op_parallelism_threads", "set_inter_op_parallelism_threads"):
        setattr(threading, name, lambda num_threads: None)  # noqa: ARG005 - TensorFlow names it


def installed_version() -> str:
    """Return TensorFlow's version without importing it, empty if it is not known."""
    if (tf := loaded_tensorflow()) is not None:
        return str(getattr(tf, "__version__", ""))
    for name in DISTRIBUTIONS:
        with suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return ""


def too_old(version: str) -> str | None:
    """Return why a version of TensorFlow is refused, or None; an unknown one is not refused."""
    if at_least(version, OLDEST):
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
    if loaded_tensorflow() is None:
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


class TensorFlow(Framework):
    """TensorFlow in this process."""

    name, traces, marks_fetches = TENSORFLOW, True, True
    has_started = False

    def version(self) -> str:
        """Return its version."""
        return str(load_tensorflow().__version__)

    @unseen()
    def start_devices(self) -> None:
        """Start devices and thread pools once per process."""
        if TensorFlow.has_started:
            return
        tf = load_tensorflow()
        function = tf.function(lambda x: x + 1)
        if self.can_compile():
            with tf.init_scope():
                function(tf.constant(1.0))
        self.synchronise()  # which needs the function, if it runs asynchronously
        TensorFlow.has_started = True

    def can_compile(self) -> bool:
        """Return whether code runs eagerly outside of functions, as it does by default."""
        tf = load_tensorflow()
        with tf.init_scope():  # stays in the graph of a tf.compat.v1.Session
            return bool(tf.executing_eagerly())

    @unseen()
    def run_compiled(self) -> None:
        """Compile a small function with XLA and run it."""
        tf = load_tensorflow()
        with tf.init_scope():
            number = tf.constant(1.0)
            # tf.config.run_functions_eagerly does not apply to a concrete function
            function = tf.function(lambda x: x + 1, jit_compile=True).get_concrete_function(number)
            function(number)
        self.synchronise()

    @unseen()
    def synchronise(self) -> None:
        """Wait for all devices; a tf.compat.v1.Session waits for them itself."""
        tf = load_tensorflow()
        if not tf.executing_eagerly():
            return
        try:
            tf.test.experimental.sync_devices()
        except tf.errors.InternalError:  # in a cluster of collectives, where it looks for workers
            _sync_own_gpus(tf)

    def fetch(self, output: Any) -> None:
        """Copy the tensors of an output to the host."""
        for tensor in load_tensorflow().nest.flatten(output):
            if hasattr(tensor, "numpy"):
                tensor.numpy()
        self.synchronise()

    def start_trace(self, folder: Path) -> None:
        """Start the profiler."""
        _profiler().start(str(folder))

    def stop_trace(self) -> None:
        """Stop the profiler, which writes its trace."""
        _profiler().stop()

    def discard_trace(self) -> None:
        """Stop the profiler if it runs."""
        try:
            _profiler().stop(save=False)
        except load_tensorflow().errors.UnavailableError:  # no session was running
            return

    def is_tracing(self) -> bool:
        """Return whether a session of `tf.profiler.experimental` runs."""
        load_tensorflow()
        from tensorflow.python.profiler import profiler_v2

        # private: the only session of the process is kept here (2.18 to 2.22)
        return getattr(profiler_v2, "_profiler", None) is not None

    def annotation(self, name: str, metadata: Mapping[str, Any]) -> Annotation:
        """Return an event of `tf.profiler.experimental.Trace`."""
        event: Annotation = _profiler().Trace(name, **metadata)
        return event

    def n_gpus(self) -> int:
        """Return the number of GPUs, without those that `set_visible_devices` hides."""
        return len(load_tensorflow().config.get_visible_devices("GPU"))

    def accelerator_bytes(self) -> int | Unknown | None:
        """Return the bytes held on GPUs, each of which may be divided into several devices."""
        config = load_tensorflow().config
        if config.get_visible_devices("TPU"):
            return Unknown("the memory that TensorFlow holds on TPUs is not read")
        gpus = config.get_visible_devices("GPU")
        n = sum(len(config.get_logical_device_configuration(gpu) or [gpu]) for gpu in gpus)
        info = config.experimental.get_memory_info
        return sum(int(info(f"GPU:{number}")["current"]) for number in range(n)) if n else None

    def tensor_bytes(self) -> int | None:
        """Return the bytes that the CPU's allocator gave out; only oneDNN's (mklcpu) tells."""
        try:
            return int(load_tensorflow().config.experimental.get_memory_info("CPU:0")["current"])
        except Exception:  # ValueError without statistics, or what a damaged context raises
            return None

    def why_gpus_are_full(self) -> str:
        """Return the remedy, if this process takes all memory of a GPU."""
        if os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH", "").lower() == "true":
            return ""
        config = load_tensorflow().config
        takes_all = any(
            not config.experimental.get_memory_growth(gpu)
            and not config.get_logical_device_configuration(gpu)
            for gpu in config.get_visible_devices("GPU")
        )
        return _FULL if takes_all else ""

    def accelerators(self) -> list[str]:
        """Return the names of the physical devices that it may use and that are not CPUs."""
        config = load_tensorflow().config
        names = []
        for device in config.get_visible_devices():
            if device.device_type == "CPU":
                continue
            is_gpu = device.device_type == "GPU"
            details = config.experimental.get_device_details(device) if is_gpu else {}
            names.append(str(details.get("device_name", device.device_type)))
        return names

    def precision(self) -> str:
        """Return the name of the dtype policy of `tf.keras`, empty without Keras."""
        try:
            keras = load_tensorflow().keras
            policy = getattr(keras, "config", None)
            if policy is None:  # Keras 2
                return str(keras.mixed_precision.global_policy().name)
            return str(policy.dtype_policy().name)
        except (ImportError, AttributeError):
            return ""


def _sync_own_gpus(tf: Any) -> None:
    """Wait for the GPUs of this process: a copy to the host ends after what was enqueued before."""
    own = tf.constant(0).device.partition("/device:")[0]
    for gpu in tf.config.list_logical_devices("GPU"):
        if gpu.name.startswith(f"{own}/"):
            with tf.device(gpu.name):
                (tf.constant(0) + 1).numpy()


def _profiler() -> Any:
    return load_tensorflow().profiler.experimental
