"""Grappler's options for the length of a context: checked before, put back exactly afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.metrics import nearest

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
"""What `tf.config.optimizer.set_experimental_options` knows and takes True or False for (tensorflow/python/eager/context.py)."""
NUMBERS = ("min_graph_nodes",)
_INT32 = 2**31  # rewriter_config.proto


@contextmanager
def grappler_options(**options: Any) -> Iterator[None]:
    """
    Within the context Grappler runs with these options besides those that are set, also on functions that were traced before.

    TensorFlow merges options into those of the process and cannot take one back; here all are as they were afterwards. A thread
    keeps the options with which it first called a function; so this works in the thread that enters it.

    Raises:
        CaptureError: If an option is unknown or its value of the wrong type; TensorFlow itself ignores the one, and fails later at
            the other.
    """
    _check(options)
    context = _context()
    before = dict(context._optimizer_experimental_options)
    context.set_optimizer_experimental_options(options)
    try:
        yield
    finally:
        context._optimizer_experimental_options.clear()
        context.set_optimizer_experimental_options(before)


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
            raise CaptureError(f"Grappler's {name} is a number of 32 bits, and {value} is not")


def _context() -> Any:
    # private: the only way to take an option back
    from tensorflow.python.eager import context

    found = context.context()
    if not isinstance(getattr(found, "_optimizer_experimental_options", None), dict):
        import tensorflow

        raise CaptureError(
            f"TensorFlow {tensorflow.__version__} does not show its Grappler options, so they could not be put back"
        )
    return found
