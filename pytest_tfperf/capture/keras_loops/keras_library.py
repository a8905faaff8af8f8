"""The libraries that Keras loops come from: Keras 3, and Keras 2 as tf_keras."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.in_use import is_installed
from pytest_tfperf.frameworks.tensorflow import loaded_tensorflow

__tracebackhide__ = True

_LIBRARIES = ("keras", "tf_keras")
_BACKENDS = ("tensorflow", "jax", "torch")
_OTHER_BACKEND = (
    "{} runs on Keras' {} backend, and tfperf profiles TensorFlow, JAX and PyTorch only: set "
    "KERAS_BACKEND to one of these for this test"
)


def library_of(thing: Any) -> Any:
    """Return the module keras or tf_keras that a model or optimizer is from, None for others."""
    packages = {base.__module__.partition(".")[0] for base in type(thing).__mro__}
    name = next((name for name in _LIBRARIES if name in packages), None)
    return None if name is None else importlib.import_module(name)


def libraries_in_use() -> list[Any]:
    """
    Return the libraries that a test may call: those loaded, and the one that is `tf.keras`.

    The latter would import TensorFlow, so it counts only where TensorFlow is loaded or the
    environment names a backend.
    """
    legacy = os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")
    may_import = loaded_tensorflow() is not None or "KERAS_BACKEND" in os.environ
    chosen = ("tf_keras" if legacy else "keras") if may_import else ""
    return [
        importlib.import_module(name)
        for name in _LIBRARIES
        if name in sys.modules or (name == chosen and is_installed(name))
    ]


def epoch_iterators() -> list[Any]:
    """Return the classes whose iterators Keras fetches elements from, where TensorFlow does not."""
    # private: `_get_iterator` of Keras 3's epoch iterators (3.5 to 3.15)
    trainer = sys.modules.get("keras.src.backend.jax.trainer")
    found = getattr(trainer, "JAXEpochIterator", None)
    return [found] if found is not None and "_get_iterator" in vars(found) else []


def check_backend(library: Any, method: str) -> None:
    """
    Refuse a loop on a backend that cannot be profiled; Keras 2 always runs on TensorFlow.

    Args:
        library: The module keras or tf_keras.
        method: Name of the loop.

    Raises:
        CaptureError: If it cannot be profiled.
    """
    backend = library.config.backend() if hasattr(library, "config") else "tensorflow"
    if backend not in _BACKENDS:
        raise CaptureError(_OTHER_BACKEND.format(method, backend))
