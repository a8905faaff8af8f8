"""Set Grappler's options for the length of a context, and restore them exactly."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.metric_registry import nearest

__tracebackhide__ = True

TOGGLES = (
    "layout_optimizer",
    "constant_folding",
    "shape_optimization",
    "remapping",
    "arithmetic_optimization",
    "dependency_optimization",
    "loop_optimization",
    "function_optimization",
    "debug_stripper",
    "disable_model_pruning",
    "scoped_allocator_optimization",
    "pin_to_host_optimization",
    "implementation_selector",
    "auto_mixed_precision",
    "auto_mixed_precision_onednn_bfloat16",
    "auto_mixed_precision_mkl",
    "use_plugin_optimizers",
    "disable_meta_optimizer",
)
"""
Boolean options of `tf.config.optimizer.set_experimental_options`.

Source: tensorflow/python/eager/context.py.
"""
NUMBERS = ("min_graph_nodes",)
_INT32 = 2**31  # rewriter_config.proto


def grappler_options(**options: Any) -> AbstractContextManager[None]:
    """
    Let Grappler run with additional options within the context, also on functions traced before.

    TensorFlow merges options into those of the process and cannot unset one. This context restores
    all of them. A thread keeps the options of its first call of a function, so the context
    works in the thread that enters it.

    Raises:
        CaptureError: If an option is unknown or its value has the wrong type. TensorFlow itself
            ignores an unknown option, and fails later on a wrong type.
    """
    _check(options)
    return _set_options(_context(), options)


@contextmanager
def _set_options(context: Any, options: dict[str, Any]) -> Iterator[None]:
    before = dict(context._optimizer_experimental_options)
    context.set_optimizer_experimental_options(options)
    try:
        yield
    finally:
        _replace(context, before)


def options_in_force() -> dict[str, Any] | None:
    """Return Grappler's options of this process, or None if TensorFlow does not show them."""
    context = sys.modules.get("tensorflow.python.eager.context")
    runtime = context.context() if context else None
    options = getattr(runtime, "_optimizer_experimental_options", None)
    return dict(options) if isinstance(options, dict) else None


@contextmanager
def exactly(options: dict[str, Any] | None) -> Iterator[None]:
    """Let Grappler run with these options alone within the context; None changes nothing."""
    before = options_in_force()
    if options is None or before is None or options == before:
        yield
        return
    runtime = _context()
    _replace(runtime, options)
    try:
        yield
    finally:
        _replace(runtime, before)


def _replace(context: Any, options: dict[str, Any]) -> None:
    context._optimizer_experimental_options.clear()
    context.set_optimizer_experimental_options(options)


def _check(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if name not in TOGGLES + NUMBERS:
            raise CaptureError(
                f"Grappler has no option {name!r}; {nearest(name, TOGGLES + NUMBERS)}"
            )
        if name in TOGGLES and not isinstance(value, bool):
            raise CaptureError(f"Grappler's {name} is True or False, not {value!r}")
        if name in NUMBERS and (isinstance(value, bool) or not isinstance(value, int)):
            raise CaptureError(f"Grappler's {name} is a whole number, not {value!r}")
        if name in NUMBERS and not -_INT32 <= value < _INT32:
            raise CaptureError(f"Grappler's {name} is a 32-bit number, and {value} is not")


def _context() -> Any:
    # private: the only way to unset an option
    from tensorflow.python.eager import context

    runtime = context.context()
    if not isinstance(getattr(runtime, "_optimizer_experimental_options", None), dict):
        import tensorflow

        raise CaptureError(
            f"TensorFlow {tensorflow.__version__} does not show its Grappler options, so they "
            "could not be restored"
        )
    return runtime
