"""
Python's work in each step: what no output shows, and a function that is traced does only once.

That is: calls with an effect (a wait, a print, a file, a clock, a random number) that no framework
makes, and names outside of the step that it sets.
"""

from __future__ import annotations

import cProfile
import functools
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import numpy as np

from pytest_tfperf.compiler.source_lines import line_of_code, user_line_of
from pytest_tfperf.remedies.state import is_users_object, references
from pytest_tfperf.text import and_more

_FRAMEWORKS = frozenset({"tensorflow", "keras", "tf_keras", "jax", "jaxlib", "flax", "optax"})
_OWN = frozenset({"pytest_tfperf", "pytest", "_pytest", "pluggy"})
_PURE = frozenset(
    {"builtins", "math", "cmath", "operator", "_operator", "itertools", "functools", "_functools"}
    | {"collections", "_collections", "_collections_abc", "abc", "_abc", "weakref", "_weakref"}
    | {"typing", "_typing", "types", "inspect", "copy", "re", "_sre", "struct", "_struct", "sys"}
    | {"json", "_json", "string", "_string", "bisect", "_bisect", "heapq", "_heapq", "_codecs"}
    | {"contextvars", "_contextvars", "gc", "numpy", "ml_dtypes", "wrapt"}
)
"""Modules whose functions in C compute, and do nothing else; random numbers of NumPy show below."""
_EFFECTS = frozenset({"print", "open", "input"})
"""Built-in functions that do."""
_DEPTH = 4  # of functions and containers that are looked through
_MOST_ITEMS = 1000  # of a container
_MOST_BYTES = 2**20  # of an array
_SHOWN = 3
_CHANGE = "the change of"


def said(work: frozenset[str]) -> str:
    """Return items of work in words, empty without any."""
    calls_first = sorted(work, key=lambda one: (one.startswith(_CHANGE), one))
    return and_more(calls_first, _SHOWN) if work else ""


def work_of(step: Any, run: Callable[[], object]) -> frozenset[str]:
    """Return what Python does in each of the steps that `run` runs, all traced before."""
    found: set[str] = set()
    before = dict(_numbers(step))
    with _watching(found.add):
        run()
    after = dict(_numbers(step))
    found |= {f"{_CHANGE} {name}" for name in before if before[name] != after.get(name)}
    return frozenset(found)


@dataclass(frozen=True, slots=True, eq=False)
class _Array:
    """An array that nobody changes in its place, by which one it is."""

    array: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Array) and other.array is self.array

    def __hash__(self) -> int:
        return id(self.array)


@contextmanager
def _watching(found: Callable[[str], None]) -> Iterator[None]:
    """Pass on each call with an effect that the user's code makes in this thread."""

    def watch(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and _has_effect(called) and (caller := _users_frame(frame)):
            name = f"{_module(called).lstrip('_')}.{called.__name__}".removeprefix("builtins.")
            found(f"{name} at {user_line_of(caller.f_code.co_filename, caller.f_lineno)}")

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield
    finally:
        # cProfile is put back by itself, since it is no function (until Python 3.11)
        before.enable() if isinstance(before, cProfile.Profile) else sys.setprofile(before)


def _users_frame(frame: FrameType | None) -> FrameType | None:
    """Return the frame of the user's that calls, None if a framework is between, or none is."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if module in _FRAMEWORKS or module in _OWN:
            return None
        if _is_users(frame.f_code):
            return frame
        frame = frame.f_back
    return None


@functools.cache
def _is_users(code: CodeType) -> bool:
    return line_of_code(code) is not None


def _module(called: Any) -> str:
    """Return the module of a function in C, or of the type whose method it is."""
    owner = getattr(called, "__self__", None)
    is_method = owner is not None and not isinstance(owner, (types.ModuleType, type))
    is_method = is_method and type(owner).__name__ != "PyCapsule"  # functions of pybind11
    return str(type(owner).__module__ if is_method else getattr(called, "__module__", None) or "")


def _has_effect(called: Any) -> bool:
    module = _module(called).partition(".")[0]
    if module in _FRAMEWORKS or module in _OWN:
        return False
    is_effect = module == "builtins" and called.__name__ in _EFFECTS
    return is_effect or module not in _PURE


def _numbers(step: Any) -> Iterator[tuple[str, object]]:
    """Yield numbers, texts, arrays and lengths of containers that a step reaches, by name."""
    seen: set[int] = set()

    def visit(name: str, value: Any, depth: int) -> Iterator[tuple[str, object]]:
        if isinstance(value, (bool, int, float, str, bytes, type(None))):
            yield name, value
            return
        if id(value) in seen or depth > _DEPTH:
            return
        seen.add(id(value))
        if isinstance(value, (list, dict, set)):
            yield name, len(value)
        if isinstance(value, np.ndarray) and value.nbytes <= _MOST_BYTES:
            yield name, value.tobytes()
        elif isinstance(value, np.random.Generator):
            yield name, str(value.bit_generator.state)
        elif hasattr(value, "shape") and hasattr(value, "dtype") and not hasattr(value, "assign"):
            yield name, _Array(value)
        if isinstance(value, (list, tuple, dict)) and len(value) <= _MOST_ITEMS:
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, one in list(items):
                yield from visit(f"{name}[{key!r}]", one, depth + 1)
        elif function := _function_in(value):
            for own, one, _ in references(function):
                if not isinstance(one, (types.ModuleType, type)):
                    yield from visit(own, one, depth + 1)
            yield from visit("self", getattr(value, "__self__", None), depth)
        elif is_users_object(value):
            for own, one in list(vars(value).items()):
                yield from visit(f"{name}.{own}", one, depth + 1)

    yield "the state of np.random", str(np.random.get_state())  # noqa: NPY002 - what users call
    yield from visit("the step", step, 0)


def _function_in(value: Any) -> types.FunctionType | None:
    """Return the Python function of a function, a method or what a framework makes of one."""
    for _ in range(_DEPTH):
        if isinstance(value, types.FunctionType):
            return value
        inner = ("func", "__func__", "python_function", "__wrapped__")
        value = next((one for one in (getattr(value, key, None) for key in inner) if one), None)
    return None
