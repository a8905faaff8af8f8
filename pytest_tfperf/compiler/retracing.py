"""tf.function traces as they happen, in any thread of the process, whether or not a profiler runs, and what brought them about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pytest_tfperf.text import and_more, elide

_MADE_ANEW = "a new tf.function of a Python function that was traced before"
_ELSEWHERE = "the same arguments in another context: a device scope, strategy or tape"
_MOST_CHANGES, _LONGEST = 3, 60

Report = Callable[[str, str], None]
"""Told the name of a function that is traced, and what changed since it was traced before; "" where nothing did."""


@contextmanager
def traces_reported_to(report: Report) -> Iterator[bool]:
    """
    Within the context, call `report` each time TensorFlow traces a Python function.

    Gives False, and reports nothing, where TensorFlow's private tracing function is not what it was in 2.16 to 2.21.
    """
    # private: the one place where a tf.function becomes a graph
    try:
        from tensorflow.python.eager.polymorphic_function import tracing_compilation

        original = tracing_compilation._create_concrete_function
    except (ImportError, AttributeError):
        yield False
        return

    seen: set[Any] = set()

    def reporting(*args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        options = next((value for value in given if hasattr(value, "python_function")), None)
        function_type = next((value for value in given if hasattr(value, "parameters")), None)
        code = getattr(getattr(options, "python_function", None), "__code__", None)
        report(
            str(getattr(options, "name", None) or "function"),
            _why(function_type, options, code in seen and code is not None),
        )
        seen.add(code)
        return original(*args, **kwargs)

    tracing_compilation._create_concrete_function = reporting
    try:
        yield True
    finally:
        tracing_compilation._create_concrete_function = original


def _why(function_type: Any, options: Any, known: bool) -> str:
    """What changed since the nearest earlier trace of a tf.function; `known` says that its Python code was traced before."""
    cache = getattr(options, "function_cache", None)
    earlier = (
        [concrete.function_type for concrete in cache.values()]
        if cache is not None and len(cache)
        else []
    )
    if not earlier or function_type is None:
        return _MADE_ANEW if known else ""
    now = _leaves_of(function_type)
    changes = min((_changes(_leaves_of(before), now) for before in reversed(earlier)), key=len)
    return and_more(changes, _MOST_CHANGES) or _ELSEWHERE


def _changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Every argument, or part of one, that is not what it was: `x float32[8,3] → float32[5,3]`."""
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
    """The parts of an argument's trace type (tensorflow/core/function/trace_type/default_types.py), each with a text for it."""
    kind = getattr(kind, "components_tuple", kind)  # of a list
    kind = getattr(kind, "named_attributes", kind)  # of an attrs class
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
    """`float32[8,3]` of a tensor, the value of a Python literal, else TensorFlow's own words."""
    if hasattr(kind, "shape") and hasattr(kind, "dtype"):
        sizes = (
            ",".join("?" if size is None else str(size) for size in kind.shape)
            if kind.shape.rank is not None
            else "…"
        )
        return f"{kind.dtype.name}[{sizes}]"
    text = repr(kind.value) if hasattr(kind, "value") else str(kind)
    return elide(text, _LONGEST)
