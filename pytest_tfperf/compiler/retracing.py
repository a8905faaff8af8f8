"""Report tf.function traces and their causes as they happen, in any thread, without a profiler."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from pytest_tfperf.frameworks.tensorflow import loaded_tensorflow
from pytest_tfperf.function_traces import (
    CONTEXT,
    DTYPE,
    EYE,
    FIRST,
    FUNCTION_ARGUMENT,
    GONE,
    KERAS_COMPILE,
    KERAS_MODEL,
    LENGTH,
    NEW_FUNCTION,
    OBJECT,
    SHAPE,
    STRUCTURE,
    UNKNOWN,
    VALUE,
    Change,
    Report,
    axes_of,
)
from pytest_tfperf.replaced import replaced
from pytest_tfperf.text import elide, plural

__tracebackhide__ = True

_FIRST = Change(FIRST, "for the first time")
_NEW_FUNCTION = Change(
    NEW_FUNCTION, "a new tf.function of a Python function that was traced before", "tf.function"
)
_ELSEWHERE = Change(
    CONTEXT,
    "the same arguments in another context: a device scope, a strategy or a graph",
    "the device scope and the strategy",
)
_NOT_SEEN = Change(
    UNKNOWN, "what changed is not known: it was traced for other arguments before this profile"
)
_UNSEEN = Change(UNKNOWN, "what changed is not known: the types of its arguments do not show it")
_COMPILED = Change(KERAS_COMPILE, "model.compile was called again")
_OTHER_MODEL = Change(KERAS_MODEL, "another model")
_KERAS = ("keras", "tf_keras")
_NOTHING = "nothing"
_LONGEST, _FEW = 60, 3
_SHOWN = reprlib.Repr()
_SHOWN.maxother = _SHOWN.maxstring = _LONGEST
"""Shows objects of the user, also those whose `__repr__` raises."""


class _Parts(NamedTuple):
    """A list, tuple, dict or object that is taken apart."""

    kind: str
    """What it is, as `list`."""
    names: tuple[str, ...]
    """Its keys or indices."""
    items: str
    """What its parts are called."""


@contextmanager
def traces_reported_to(report: Report) -> Iterator[bool]:
    """
    Call `report` within the context each time TensorFlow traces a Python function.

    The result is False, and nothing is reported, if TensorFlow's private tracing function differs
    from 2.18 to 2.22.
    """
    module = _tracing_module()
    if module is None:
        yield False
        return

    original = module._create_concrete_function
    seen = _Seen()

    def reporting(*args: Any, **kwargs: Any) -> Any:
        values = (*args, *kwargs.values())
        options = next((value for value in values if hasattr(value, "python_function")), None)
        function_type = next((value for value in values if hasattr(value, "parameters")), None)
        try:
            changes = seen.changes(function_type, options)
        except Exception:  # fields of the user's types may have any name that is read here
            changes = (_UNSEEN,)
        report(str(getattr(options, "name", None) or "function"), changes)
        concrete = original(*args, **kwargs)
        seen.concrete.add(concrete)
        return concrete

    with replaced(module, "_create_concrete_function", reporting):
        yield True


def _tracing_module() -> Any | None:
    """Return TensorFlow's module that traces, None if TensorFlow is not loaded or differs."""
    # private: the only place where a tf.function becomes a graph
    try:
        if loaded_tensorflow() is None:
            return None
        from tensorflow.python.eager.polymorphic_function import tracing_compilation
    except ImportError:
        return None
    return (
        tracing_compilation if hasattr(tracing_compilation, "_create_concrete_function") else None
    )


class _Seen:
    """The functions that were traced within the context."""

    def __init__(self) -> None:
        self.concrete: WeakSet[Any] = WeakSet()
        self._codes: set[Any] = set()
        self._steps_of: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()

    def changes(self, function_type: Any, options: Any) -> tuple[Change, ...]:
        """
        Return the changes since the nearest earlier trace of a tf.function.

        A trace of before this context is compared only if it is the only one: of several, nothing
        tells which the steps have used.
        """
        # the function that TensorFlow traces wraps the user's, by the same code for each
        function = inspect.unwrap(getattr(options, "python_function", None) or self.changes)
        again = self._new_function(function)
        cache = getattr(options, "function_cache", None)
        every = list(cache.values()) if cache is not None else []
        earlier = [one for one in every if one in self.concrete] or every
        if not earlier or function_type is None:
            return (again,)
        if len(earlier) > 1 and earlier is every:
            return (_NOT_SEEN,)
        now = _leaves_of(function_type)
        before = (_leaves_of(one.function_type) for one in reversed(earlier))
        changes, nearest = min(
            ((_changes(one, now), one) for one in before), key=lambda one: len(one[0])
        )
        return tuple(changes) or (_ELSEWHERE if nearest == now else _UNSEEN,)

    def _new_function(self, function: Any) -> Change:
        """Note a function; return why there is no earlier trace of it."""
        code = getattr(function, "__code__", None)
        is_known = code is not None and code in self._codes
        self._codes.add(code)
        if str(getattr(function, "__module__", "")).partition(".")[0] not in _KERAS:
            return _NEW_FUNCTION if is_known else _FIRST
        # private: what Keras' function of a step holds (2.18 to 2.21, and 3.0 to 3.15)
        held = inspect.getclosurevars(function).nonlocals if code else {}
        model = held.get("self")
        name, of = getattr(function, "__qualname__", ""), held.get("step_function")
        step = f"{name} {getattr(of, '__name__', '')}"
        steps = self._steps_of.setdefault(model, set()) if model is not None else {step}
        is_compiled = step in steps and model is not None
        steps.add(step)
        if not is_known:
            return _FIRST
        return _COMPILED if is_compiled else _FIRST if len(steps) > 1 else _OTHER_MODEL


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """
    Return the change of each argument, or part of one: `x float32[8,3] → float32[5,3]`.

    Parts that only one side has are not named where the change of the whole says it.
    """
    found: list[Change] = []
    whole: tuple[str, ...] = ()
    for path in dict.fromkeys((*now, *before)):
        was, is_now = before.get(path), now.get(path)
        if None in (was, is_now) and path.startswith(whole):
            continue
        changes = list(_change(path, was, is_now))
        found += changes
        if changes and _Parts in (type(was), type(is_now)):
            whole = (*whole, f"{path}[", f"{path}.")
    return found


def _change(path: str, before: Any, now: Any) -> Iterator[Change]:
    """Yield the changes of a part of an argument; None is a part that there is not."""
    was, is_now = (_NOTHING if kind is None else _text(kind) for kind in (before, now))
    text = f"{path} {was} → {is_now}"
    if isinstance(before, _Parts) and isinstance(now, _Parts):
        yield from _of_parts(path, before, now)
    elif before is None or now is None:
        yield Change(STRUCTURE, text, path)
    elif _is_tensor(before) and _is_tensor(now):
        if before.dtype != now.dtype:
            yield Change(DTYPE, text, path)
        if was.partition("[")[2] != is_now.partition("[")[2]:
            shapes = (
                tuple(kind.shape) if kind.shape.rank is not None else () for kind in (before, now)
            )
            yield Change(SHAPE, text, axes_of(path, *shapes))
        elif was == is_now and type(before) is not type(now):
            yield Change(STRUCTURE, f"{path} {type(before).__name__} → {type(now).__name__}", path)
    elif hasattr(before, "value") and hasattr(now, "value"):
        if before != now:
            is_none = before.value is None or now.value is None
            yield Change(STRUCTURE if is_none else VALUE, text, path)
    elif hasattr(before, "_ref") and hasattr(now, "_ref"):  # private: any other Python object
        if before != now:
            yield _of_objects(path, before._ref(), now._ref())
    elif was != is_now:
        yield Change(STRUCTURE, text, path)


def _of_parts(path: str, before: _Parts, now: _Parts) -> Iterator[Change]:
    """Yield the change of a list, tuple, dict or object with parts, but few keys of a dict."""
    n_before, n_now = len(before.names), len(now.names)
    few = len({*before.names} ^ {*now.names}) <= _FEW and now.kind == "dict"
    if before.kind != now.kind:
        yield Change(STRUCTURE, f"{path} {before.kind} → {now.kind}", path)
    elif n_before != n_now and not few:
        text = f"{path}: a {now.kind} of {n_before} → {plural(n_now, now.items)}"
        yield Change(LENGTH, text, path)


def _of_objects(path: str, before: Any, now: Any) -> Change:
    """Return the change of a Python object; `before` is None if it is gone."""
    if before is not None and type(before) is not type(now):
        return Change(STRUCTURE, f"{path} {type(before).__name__} → {type(now).__name__}", path)
    if callable(now) and hasattr(now, "__name__"):
        return Change(FUNCTION_ARGUMENT, f"{path}: another function {now.__name__}", path)
    kind = type(now).__name__
    if before is None:
        return Change(GONE, f"{path}: another {kind}; the one before is gone", path)
    was, is_now = map(_SHOWN.repr, (before, now))
    if was == is_now:
        return Change(OBJECT, f"{path}: another {kind}, {EYE}: {is_now}", path)
    if was.endswith(">") and " at 0x" in was:
        return Change(OBJECT, f"{path}: another {kind}, which does not equal the one before", path)
    return Change(VALUE, f"{path} {was} → {is_now}", path)


def _is_tensor(kind: Any) -> bool:
    shape, dtype = getattr(kind, "shape", None), getattr(kind, "dtype", None)
    return hasattr(shape, "rank") and hasattr(dtype, "name")


def _leaves_of(function_type: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    variadic: dict[str, dict[str, Any]] = {}
    for name, argument in function_type.parameters.items():
        base, _, index = name.rpartition("_")
        parts = variadic.get(base, {})
        # arguments of `*rows` are rows_0, rows_1 … without a keyword (function_type.py,
        # `canonicalize_to_monomorphic` in tensorflow/core/function/polymorphism)
        is_of_rest = argument.kind is argument.POSITIONAL_ONLY and index == str(len(parts))
        if base not in function_type.parameters and is_of_rest:
            variadic[base] = {**parts, f"[{index}]": argument.type_constraint}
        else:
            found.update(_leaves(name, argument.type_constraint))
    for base, parts in variadic.items():
        found.update(_leaves_of_parts(base, "tuple", parts))
    return found


def _leaves(path: str, kind: Any) -> Iterator[tuple[str, Any]]:
    """
    Yield the parts of an argument's trace type, each with its path, a whole before its parts.

    Source: tensorflow/core/function/trace_type/default_types.py.
    """
    name = type(kind).__name__.lower()  # list, tuple, dict, namedtuple, attrs
    kind = getattr(kind, "components_tuple", kind)  # a list
    kind = getattr(kind, "named_attributes", kind)  # an attrs class
    if hasattr(kind, "attribute_names"):
        attributes = zip(kind.attribute_names, kind.attributes.components, strict=True)
        parts = {f".{one}": part for one, part in attributes}
    elif hasattr(kind, "components"):
        parts = {f"[{index}]": part for index, part in enumerate(kind.components)}
    elif hasattr(kind, "mapping"):
        parts = {f"[{key!r}]": part for key, part in kind.mapping.items()}
    else:
        yield path, kind
        return
    yield from _leaves_of_parts(path, name, parts)


def _leaves_of_parts(path: str, kind: str, parts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    are_tensors = bool(parts) and all(map(_is_tensor, parts.values()))
    yield path, _Parts(kind, tuple(parts), "tensor" if are_tensors else "item")
    for at, part in parts.items():
        yield from _leaves(path + at, part)


def _text(kind: Any) -> str:
    """Return `float32[8,3]` for a tensor, the value of a Python literal, else TensorFlow's text."""
    if _is_tensor(kind):
        if kind.shape.rank is None:
            return f"{kind.dtype.name}[…]"
        sizes = ",".join("?" if size is None else str(size) for size in kind.shape)
        return f"{kind.dtype.name}[{sizes}]"
    if isinstance(kind, _Parts):
        return f"{kind.kind} of {len(kind.names)}"
    text = repr(kind.value) if hasattr(kind, "value") else str(kind)
    return elide(text, _LONGEST)
