"""Report tf.function traces and their causes as they happen, in any thread, without a profiler."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pytest_tfperf.frameworks.nests import loaded_tensorflow
from pytest_tfperf.replaced import replaced
from pytest_tfperf.text import and_more, elide

__tracebackhide__ = True

_NEW_FUNCTION = "a new tf.function of a Python function that was traced before"
_ELSEWHERE = "the same arguments in another context: a device scope, strategy or tape"
_MOST_CHANGES, _LONGEST = 3, 60

Report = Callable[[str, str], None]
"""Receives the name of a traced function, and the change since its last trace ("": none)."""


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
    traced: set[Any] = set()

    def reporting(*args: Any, **kwargs: Any) -> Any:
        values = (*args, *kwargs.values())
        options = next((value for value in values if hasattr(value, "python_function")), None)
        function_type = next((value for value in values if hasattr(value, "parameters")), None)
        # the function that TensorFlow traces wraps the user's, by the same code for each
        function = inspect.unwrap(getattr(options, "python_function", None) or reporting)
        code = getattr(function, "__code__", None)
        report(
            str(getattr(options, "name", None) or "function"),
            _change(function_type, options, code in traced and code is not None),
        )
        traced.add(code)
        return original(*args, **kwargs)

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


def _change(function_type: Any, options: Any, known: bool) -> str:
    """
    Describe the change since the nearest earlier trace of a tf.function.

    Args:
        function_type: FunctionType of the new trace.
        options: TracingOptions, which hold the cache of earlier traces.
        known: Whether its Python code was traced before.
    """
    cache = getattr(options, "function_cache", None)
    earlier = (
        [concrete.function_type for concrete in cache.values()]
        if cache is not None and len(cache)
        else []
    )
    if not earlier or function_type is None:
        return _NEW_FUNCTION if known else ""
    now = _leaves_of(function_type)
    changes = min((_changes(_leaves_of(before), now) for before in reversed(earlier)), key=len)
    return and_more(changes, _MOST_CHANGES) or _ELSEWHERE


def _changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Describe each argument, or part of one, that changed: `x float32[8,3] → float32[5,3]`."""
    paths = dict.fromkeys((*now, *before))
    nothing = "nothing"
    return [
        f"{path} {before.get(path, nothing)} → {now.get(path, nothing)}"
        for path in paths
        if before.get(path) != now.get(path)
    ]


def _leaves_of(function_type: Any) -> dict[str, str]:
    return {
        path: text
        for name, argument in function_type.parameters.items()
        for path, text in _leaves(name, argument.type_constraint)
    }


def _leaves(path: str, kind: Any) -> Iterator[tuple[str, str]]:
    """
    Yield the parts of an argument's trace type, each with its path and a text.

    Source: tensorflow/core/function/trace_type/default_types.py.
    """
    kind = getattr(kind, "components_tuple", kind)  # a list
    kind = getattr(kind, "named_attributes", kind)  # an attrs class
    if hasattr(kind, "attribute_names"):
        for name, part in zip(kind.attribute_names, kind.attributes.components, strict=True):
            yield from _leaves(f"{path}.{name}", part)
    elif hasattr(kind, "components"):
        for index, part in enumerate(kind.components):
            yield from _leaves(f"{path}[{index}]", part)
    elif hasattr(kind, "mapping"):
        for key, part in kind.mapping.items():
            yield from _leaves(f"{path}[{key!r}]", part)
    else:
        yield path, _text(kind)


def _text(kind: Any) -> str:
    """Return `float32[8,3]` for a tensor, the value of a Python literal, else TensorFlow's text."""
    if hasattr(kind, "shape") and hasattr(kind, "dtype"):
        if kind.shape.rank is None:
            return f"{kind.dtype.name}[…]"
        sizes = ",".join("?" if size is None else str(size) for size in kind.shape)
        return f"{kind.dtype.name}[{sizes}]"
    text = repr(kind.value) if hasattr(kind, "value") else str(kind)
    return elide(text, _LONGEST)
