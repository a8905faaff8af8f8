"""Traces of functions in the steps, and the changes that caused them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

SHAPE = "shape"
DTYPE = "dtype"
WEAK_TYPE = "weak type"
"""A type of JAX that a Python number gives, and that arrays of other types overrule."""
SHARDING = "sharding"
VALUE = "Python value"
"""A number, text or truth value that TensorFlow makes a part of a signature."""
STATIC = "static argument"
OBJECT = "unequal object"
"""An object that replaces one like it, and does not equal it."""
GONE = "object that is gone"
"""An object in place of one that is gone; TensorFlow holds none alive."""
FUNCTION_ARGUMENT = "function as an argument"
STRUCTURE = "structure"
"""Keys, None, keywords and kinds of arguments."""
LENGTH = "length"
"""The number of items of a list, a tuple or a large dict."""
NEW_FUNCTION = "new function"
"""A function of code that was traced before."""
NEW_PIPELINE = "new pipeline"
"""The same for a function of tf.data, which traces one for each stage of a dataset that is made."""
KERAS_COMPILE = "model.compile"
KERAS_MODEL = "new model"
CONTEXT = "context"
"""A device scope, a strategy, or a setting of JAX."""
FORGOTTEN = "forgotten traces"
FIRST = "first trace"
UNKNOWN = "unknown"

EYE = "equal to the eye and not to =="
TRACED_AGAIN = "traced again"
"""End of the reason why a profile ended early whose last steps were each traced anew."""


class Change(NamedTuple):
    """What was different when a function was traced again."""

    kind: str
    """The kind of change: a constant of this module."""
    text: str
    """The change, as in `x f32[8] → f32[5]`."""
    of: str = ""
    """What changed, as in `axis 0 of x`."""


Report: TypeAlias = Callable[[str, Sequence[Change]], None]
"""Receives the name of a traced function, and what changed since its last trace, if known."""


class FunctionTrace(NamedTuple):
    """One trace of a function."""

    function: str
    step: int
    """The step in which it was traced."""
    changes: tuple[Change, ...] = ()
    """What changed; empty if nothing is known of it."""
    line: str | None = None
    """The user's line that called it."""


def axes_of(path: str, before: tuple[object, ...], now: tuple[object, ...]) -> str:
    """Return the axes in which the shape of an argument changed, as `axes 0 and 1 of x`."""
    if len(before) != len(now):
        return f"the rank of {path}"
    axes = [str(n) for n, (one, other) in enumerate(zip(before, now, strict=True)) if one != other]
    return f"{'axis' if len(axes) == 1 else 'axes'} {' and '.join(axes)} of {path}"
