"""tf.function traces as they happen, in any thread of the process, whether or not a profiler runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.xspace import Trace


@contextmanager
def traces_reported_to(report: Callable[[str], None]) -> Iterator[bool]:
    """
    Within the context, call `report` with the function's name each time TensorFlow traces a Python function.

    Gives False, and reports nothing, where TensorFlow's private tracing function is not what it was in 2.16 to 2.21.
    """
    # private: the one place where a tf.function becomes a graph
    try:
        from tensorflow.python.eager.polymorphic_function import tracing_compilation

        original = tracing_compilation._create_concrete_function
    except (ImportError, AttributeError):
        yield False
        return

    def reporting(*args: Any, **kwargs: Any) -> Any:
        report(_name(args, kwargs))
        return original(*args, **kwargs)

    tracing_compilation._create_concrete_function = reporting
    try:
        yield True
    finally:
        tracing_compilation._create_concrete_function = original


def runs_functions(trace: Trace) -> bool:
    """Whether a tf.function was called from Python while the trace ran."""
    return bool(Events.of(trace.plane("/host:CPU")).called("EagerExecute").integers("is_func").any())


def _name(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    options = next((value for value in (*args, *kwargs.values()) if hasattr(value, "python_function")), None)
    return str(getattr(options, "name", None) or "function")
