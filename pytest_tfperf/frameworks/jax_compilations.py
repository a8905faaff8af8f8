"""Report the executables that JAX compiles as it compiles them, also those that are freed soon."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pytest_tfperf.frameworks.jax_framework import loaded_jax
from pytest_tfperf.frameworks.jax_tracing import unregistration
from pytest_tfperf.values import WAITS

_COMPILED = "/jax/core/compile/backend_compile_duration"
"""The event that ends each compilation of an executable (jax/_src/dispatch.py)."""
_NO_LETTER = re.compile(r"[^A-Za-z0-9_.-]")


@contextmanager
def jax_compilations_reported_to(report: Callable[[str], None]) -> Iterator[None]:
    """
    Call `report` within the context with the module of each executable that JAX compiles.

    Nothing is reported if JAX is not loaded, or lacks what this needs.
    """
    jax, unregister = loaded_jax(), unregistration()
    if jax is None or unregister is None:
        yield
        return

    def compiled(event: str, _: float, **of: Any) -> None:
        name = str(of.get("fun_name") or "executable")
        if event == _COMPILED and WAITS not in name:
            report(module_name(name))

    jax.monitoring.register_event_duration_secs_listener(compiled)
    try:
        yield
    finally:
        unregister(compiled)


def module_name(function: str) -> str:
    """Return the name of the module of a function in an event, `jit(<lambda>)` → `jit__lambda`."""
    name = function.replace("(", "_", 1).removesuffix(")") if "(" in function else f"jit_{function}"
    return _NO_LETTER.sub("_", name).rstrip("_")
