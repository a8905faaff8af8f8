"""Restore models, optimizers and variables after a profile has trained them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from pytest_tfperf.capture.keras_data import library_of
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.tensorflow import loaded_tensorflow

__tracebackhide__ = True


def restored(things: Any) -> AbstractContextManager[None]:
    """
    Restore the values of variables when the context ends, also after an error.

    `things` are a Keras model that is built (with its optimizer and metrics), an optimizer, a
    variable, or any nesting of these. Raises: CaptureError for others.
    """
    things = [] if things is None else _flatten(things)
    return _restored([variable for thing in things for variable in _variables(thing)])


def is_restorable(thing: Any) -> bool:
    """Return whether `restored` takes a thing: a built model or optimizer, a module, a variable."""
    try:
        return bool(_variables(thing))
    except CaptureError:
        return False


@contextmanager
def _restored(variables: list[Any]) -> Iterator[None]:
    saved = [variable.numpy() for variable in variables]  # copies, never views of a variable
    try:
        yield
    finally:
        for variable, value in zip(variables, saved, strict=True):
            variable.assign(value)


def _flatten(things: Any) -> list[Any]:
    if isinstance(things, (list, tuple, set)):
        return [item for thing in things for item in _flatten(thing)]
    return _flatten(list(things.values())) if isinstance(things, dict) else [things]


def _variables(thing: Any) -> list[Any]:
    if hasattr(thing, "assign") and hasattr(thing, "numpy"):
        return [thing]
    library = library_of(thing)
    if library is not None and isinstance(thing, library.Model):
        if not thing.built:
            raise CaptureError(
                f"restore= needs a built model, and {thing.name} is not built; call it on a batch "
                "first, or model.build(shape)"
            )
        optimizer = getattr(thing, "optimizer", None)
        return [
            *thing.variables,
            *(variable for metric in thing.metrics for variable in metric.variables),
            *(_of_optimizer(optimizer, thing.trainable_variables) if optimizer else ()),
        ]
    if library is not None and (
        isinstance(thing, library.optimizers.Optimizer) or _is_legacy(thing)
    ):
        return _of_optimizer(thing, None)
    tf = loaded_tensorflow()
    if tf is not None and isinstance(thing, tf.Module):
        return list(thing.variables)
    raise CaptureError(
        f"restore= takes Keras models, optimizers and variables, not {type(thing).__name__}"
    )


def _of_optimizer(optimizer: Any, trained: Any) -> list[Any]:
    if _is_legacy(optimizer):
        built, build = bool(optimizer.variables()), optimizer._create_all_weights
    else:
        inner = getattr(optimizer, "inner_optimizer", optimizer)  # of one that scales losses
        # private: Keras 2 has no other attribute that tells
        built = getattr(optimizer, "built", getattr(inner, "_built", False))
        build = optimizer.build
    if not built:
        if trained is None:
            raise CaptureError(
                "restore= needs a built optimizer; call optimizer.build(variables) first, or pass "
                "the model it belongs to"
            )
        build(trained)
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def _is_legacy(optimizer: Any) -> bool:
    """Return whether it is one of `tf_keras.optimizers.legacy`."""
    return hasattr(optimizer, "_create_all_weights")
