"""Explain failures of kernels on a GPU that the profiler causes, in the user's own error."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

__tracebackhide__ = True

_FAILED = "CUDA_ERROR_LAUNCH_FAILED"
_GRAPHS_OFF = "--xla_gpu_enable_command_buffer="
_NOTE = (
    "tfperf: seen where JAX's profiler runs beside CUDA graphs (JAX 0.11.2, CUDA 13.0). Set "
    f"XLA_FLAGS={_GRAPHS_OFF} for this test: if the error stays, the step has it too"
)


@contextmanager
def launch_failures_explained() -> Iterator[None]:
    """Add a note to an error of a kernel that failed, unless CUDA graphs are off."""
    try:
        yield
    except Exception as error:
        if _FAILED in str(error) and not _are_graphs_off() and hasattr(error, "add_note"):
            error.add_note(_NOTE)  # from Python 3.11 on
        raise


def _are_graphs_off() -> bool:
    return _GRAPHS_OFF in os.environ.get("XLA_FLAGS", "").split()
