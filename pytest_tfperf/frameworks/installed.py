"""The frameworks that are installed, imported for commands that run steps of their own."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.interface import JAX, TENSORFLOW, Framework
from pytest_tfperf.frameworks.jax_framework import Jax, load_jax
from pytest_tfperf.frameworks.tensorflow_framework import TensorFlow
from pytest_tfperf.frameworks.tensorflow_runtime import load_tensorflow

_LOADERS: Mapping[str, tuple[str, Framework, Callable[[], Any]]] = {
    TENSORFLOW: ("tensorflow", TensorFlow(), load_tensorflow),
    JAX: ("jax", Jax(), load_jax),
}
"""The module of each framework that writes traces, its interface, and its import."""
_NEITHER = (
    "neither TensorFlow nor JAX is installed, and steps need one: pip install tensorflow "
    "(or tensorflow-cpu, the smaller build without GPU support), or pip install jax"
)


def is_installed(module: str) -> bool:
    """Return whether a module is installed, and more of it than a folder that was left over."""
    spec = importlib.util.find_spec(module)
    return spec is not None and spec.origin is not None


def load_installed() -> tuple[tuple[Framework, ...], dict[str, str]]:
    """
    Import the frameworks that are installed, TensorFlow first.

    Returns:
        Those that can run steps, and why others cannot by name.

    Raises:
        CaptureError: If there is none that can.
    """
    found: list[Framework] = []
    refused: dict[str, str] = {}
    for name, (module, framework, load) in _LOADERS.items():
        if not is_installed(module):
            continue
        try:
            load()
        except CaptureError as error:
            refused[name] = str(error)
        else:
            found.append(framework)
    if not found:
        raise CaptureError("; ".join(refused.values()) or _NEITHER)
    return tuple(found), refused
