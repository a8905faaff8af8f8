"""A framework: all that a profile asks of what runs its steps, and the answers by default."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from pytest_tfperf.values import Unknown

TENSORFLOW, JAX, PYTORCH = "TensorFlow", "JAX", "PyTorch"


def at_least(version: str, least: tuple[int, ...]) -> bool:
    """Return whether a version is this one or newer; one that is unknown counts as newer."""
    numbers = re.match(r"\d+(?:\.\d+)+", version)
    return numbers is None or tuple(map(int, numbers[0].split("."))) >= least


class Annotation(AbstractContextManager[Any], Protocol):
    """An event that a running session records from enter to exit."""

    def set_metadata(self, **metadata: Any) -> None:
        """Add metadata to the event."""


class Framework:
    """A framework that is loaded in this process; by default it does and knows nothing more."""

    name: str
    traces = False
    """True if its profiler writes traces as XSpace; else sessions pass it over."""
    marks_fetches = False
    """True if its traces show how iterators of its own make elements."""
    runs_behind_python = False
    """True if calls may return before their work has ended, on CPUs too."""

    def version(self) -> str:
        """Return its version."""
        raise NotImplementedError

    def start_devices(self) -> None:
        """Start devices and thread pools once per process, so that no first step includes it."""
        self.synchronise()

    def can_compile(self) -> bool:
        """Return whether `run_compiled` can be called now."""
        return False

    def run_compiled(self) -> None:
        """Compile a new small function with XLA and run it."""

    def synchronise(self) -> None:
        """Wait for all devices of this process."""
        raise NotImplementedError

    def wait_for(self, output: Any) -> None:
        """Raise the error of the step that made an output, if `synchronise` does not."""

    def most_unfinished(self) -> int | None:
        """Return the most calls of a step that may be unfinished, or None without a bound."""
        return None

    def fetch(self, output: Any) -> None:
        """Copy its arrays in a step's output to the host, as an inference server does."""
        raise NotImplementedError

    def start_trace(self, folder: Path) -> None:
        """Start the profiler, which writes below a folder."""

    def stop_trace(self) -> None:
        """Stop the profiler, which then writes `plugins/profile/<run>/<host>.xplane.pb`."""

    def discard_trace(self) -> None:
        """Stop the profiler if it runs, and discard its trace."""

    def is_tracing(self) -> bool:
        """Return whether the profiler of this process runs."""
        return False

    def annotation(self, name: str, metadata: Mapping[str, Any]) -> Annotation:
        """Return an event of a name, for a running session."""
        raise NotImplementedError

    def n_gpus(self) -> int:
        """Return the number of GPUs that it uses in this process."""
        return 0

    def accelerator_bytes(self) -> int | Unknown | None:
        """Return the bytes that its allocators hold on devices that are not CPUs, None without."""
        return None

    def tensor_bytes(self) -> int | None:
        """
        Return the bytes that an allocator of its own has given out on the CPU, or None.

        Such an allocator takes memory from malloc in regions that double in size.
        """
        return None

    def why_gpus_are_full(self) -> str:
        """Return why no other process can use the GPUs of this one, and a remedy; else nothing."""
        return ""

    def accelerators(self) -> list[str]:
        """Return the names of its devices that are not CPUs."""
        return []

    def precision(self) -> str:
        """Return the setting that chooses the types of computations."""
        return ""
