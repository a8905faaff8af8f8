"""Watch what each framework traces and compiles while a profile runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from pytest_tfperf.capture.windows import Windows
from pytest_tfperf.compiler.retracing import traces_reported_to
from pytest_tfperf.frameworks.framework import JAX, PYTORCH, TENSORFLOW
from pytest_tfperf.frameworks.jax_traces import jax_compilations_reported_to, jax_traces_reported_to
from pytest_tfperf.frameworks.torch import torch_traces_reported_to
from pytest_tfperf.function_traces import Report

__tracebackhide__ = True

_REPORTED = {
    TENSORFLOW: traces_reported_to,
    JAX: jax_traces_reported_to,
    PYTORCH: torch_traces_reported_to,
}


@contextmanager
def traces_watched(windows: Windows) -> Iterator[None]:
    """Report what frameworks trace and compile in the context to the windows."""
    with (
        traces_reported(windows.function_traced) as watched,
        jax_compilations_reported_to(windows.executable_compiled),
    ):
        windows.watched = watched
        yield


@contextmanager
def traces_reported(report: Report) -> Iterator[frozenset[str]]:
    """Report what frameworks trace in the context, and give the frameworks that do."""
    with ExitStack() as stack:
        watched = {
            name: stack.enter_context(reported_to(report))
            for name, reported_to in _REPORTED.items()
        }
        yield frozenset(name for name, known in watched.items() if known)
