"""The interface of a framework: all that a profile asks of what runs its steps."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

TENSORFLOW, JAX, PYTORCH = "TensorFlow", "JAX", "PyTorch"


class Annotation(AbstractContextManager[Any], Protocol):
    """An event that a running session records from enter to exit."""

    def set_metadata(self, **metadata: Any) -> None:
        """Add metadata to the event."""


class Framework(Protocol):
    """A framework that is loaded in this process."""

    name: str
    """Its name."""
    traces: bool
    """True if its profiler writes traces as XSpace; else sessions pass it over."""
    marks_fetches: bool
    """True if its traces show how iterators of its own make elements."""

    def version(self) -> str:
        """Return its version."""

    def start_devices(self) -> None:
        """Start devices and thread pools once per process, so that no first step includes it."""

    def can_compile(self) -> bool:
        """Return whether `run_compiled` can be called now."""

    def run_compiled(self) -> None:
        """Compile a new small function with XLA and run it."""

    def synchronise(self) -> None:
        """Wait for all devices of this process."""

    def most_unfinished(self) -> int | None:
        """Return the most calls of a step that may be unfinished, or None without a bound."""

    def fetch(self, output: Any) -> None:
        """Copy its arrays in a step's output to the host, as an inference server does."""

    def start_trace(self, folder: Path) -> None:
        """Start the profiler, which writes below a folder."""

    def stop_trace(self) -> None:
        """Stop the profiler, which then writes `plugins/profile/<run>/<host>.xplane.pb`."""

    def discard_trace(self) -> None:
        """Stop the profiler if it runs, and discard its trace."""

    def is_tracing(self) -> bool:
        """Return whether the profiler of this process runs."""

    def annotation(self, name: str, metadata: Mapping[str, Any]) -> Annotation:
        """Return an event of a name, for a running session."""

    def n_gpus(self) -> int:
        """Return the number of GPUs that it uses in this process."""

    def gpu_bytes(self) -> int | None:
        """Return the bytes that its allocators hold on GPUs, or None without GPUs."""

    def tensor_bytes(self) -> int | None:
        """
        Return the bytes that an allocator of its own has given out on the CPU, or None.

        Such an allocator takes memory from malloc in regions that double in size.
        """

    def takes_whole_gpus(self) -> bool:
        """Return whether this process takes all memory of a GPU, which then no other can use."""

    def accelerators(self) -> list[str]:
        """Return the names of its devices that are not CPUs."""

    def precision(self) -> str:
        """Return the setting that chooses the types of computations."""
