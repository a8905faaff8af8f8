"""TensorFlow as a framework of steps: its profiler, marks and devices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_tfperf.frameworks import tensorflow_runtime as runtime
from pytest_tfperf.frameworks.interface import TENSORFLOW, Annotation


class TensorFlow:
    """TensorFlow in this process; `Framework` describes its methods."""

    name, traces, marks_fetches = TENSORFLOW, True, True

    def version(self) -> str:
        """Return its version."""
        return str(runtime.load_tensorflow().__version__)

    def start_devices(self) -> None:
        """Start devices and thread pools once per process."""
        runtime.start_devices()

    def can_compile(self) -> bool:
        """Return whether functions run eagerly here, as they do by default."""
        return runtime.executes_eagerly()

    def run_compiled(self) -> None:
        """Compile a small function with XLA and run it."""
        runtime.run_compiled()

    def synchronise(self) -> None:
        """Wait for all devices."""
        runtime.sync_devices()

    def most_unfinished(self) -> None:
        """Return None: it has no bound."""

    def fetch(self, output: Any) -> None:
        """Copy the tensors of an output to the host."""
        runtime.fetch(output)

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
        except runtime.load_tensorflow().errors.UnavailableError:  # no session was running
            return

    def is_tracing(self) -> bool:
        """Return whether a session of `tf.profiler.experimental` runs."""
        runtime.load_tensorflow()
        from tensorflow.python.profiler import profiler_v2

        # private: the only session of the process is kept here (2.18 to 2.22)
        return getattr(profiler_v2, "_profiler", None) is not None

    def annotation(self, name: str, metadata: Mapping[str, Any]) -> Annotation:
        """Return an event of `tf.profiler.experimental.Trace`."""
        event: Annotation = _profiler().Trace(name, **metadata)
        return event

    def n_gpus(self) -> int:
        """Return the number of GPUs."""
        return runtime.n_gpus()

    def gpu_bytes(self) -> int | None:
        """Return the bytes held on GPUs."""
        return runtime.gpu_bytes()

    def tensor_bytes(self) -> int | None:
        """Return the bytes of tensors on the CPU, as far as oneDNN's allocator holds them."""
        return runtime.tensor_bytes()

    def takes_whole_gpus(self) -> bool:
        """Return whether this process takes all memory of a GPU."""
        return runtime.takes_whole_gpus()

    def accelerators(self) -> list[str]:
        """Return the names of physical devices that are not CPUs."""
        config = runtime.load_tensorflow().config
        names = []
        for device in config.list_physical_devices():
            if device.device_type == "CPU":
                continue
            is_gpu = device.device_type == "GPU"
            details = config.experimental.get_device_details(device) if is_gpu else {}
            names.append(str(details.get("device_name", device.device_type)))
        return names

    def precision(self) -> str:
        """Return the name of the dtype policy of `tf.keras`."""
        return runtime.precision()


def _profiler() -> Any:
    return runtime.load_tensorflow().profiler.experimental
