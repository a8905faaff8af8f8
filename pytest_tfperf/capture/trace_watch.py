"""Watch what each framework traces and compiles while the windows of a profile run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from pytest_tfperf.capture.windows import Windows
from pytest_tfperf.compiler.retracing import traces_reported_to
from pytest_tfperf.frameworks.interface import JAX, PYTORCH, TENSORFLOW
from pytest_tfperf.frameworks.jax_compilations import jax_compilations_reported_to
from pytest_tfperf.frameworks.jax_tracing import jax_traces_reported_to
from pytest_tfperf.frameworks.torch_framework import torch_traces_reported_to

__tracebackhide__ = True

_REPORTED = {
    TENSORFLOW: traces_reported_to,
    JAX: jax_traces_reported_to,
    PYTORCH: torch_traces_reported_to,
}


@contextmanager
def traces_watched(windows: Windows) -> Iterator[None]:
    """Report what frameworks trace and compile in the context to the windows."""
    with ExitStack() as stack:
        watched = {
            name: stack.enter_context(reported_to(windows.function_traced))
            for name, reported_to in _REPORTED.items()
        }
        stack.enter_context(jax_compilations_reported_to(windows.executable_compiled))
        windows.watched = frozenset(name for name, known in watched.items() if known)
        yield
