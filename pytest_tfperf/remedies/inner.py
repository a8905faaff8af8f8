"""Remedies of a step that stays Python's, as it keeps state: what it calls on arrays, compiled."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, ClassVar

from pytest_tfperf.compiler.source_lines import line_of_code
from pytest_tfperf.frameworks.jax import loaded_jax
from pytest_tfperf.frameworks.tensorflow import loaded_tensorflow
from pytest_tfperf.remedies.functions import IsOne, Use, code_of, uses_of, where, with_functions
from pytest_tfperf.remedies.jax import OneJit
from pytest_tfperf.remedies.remedy import Call, DoesNotApply, Remedy
from pytest_tfperf.remedies.step import OneFunction

_SELF = "self"


class _Inner(Remedy):
    """Functions of the user's that take and return arrays, each compiled."""

    kind = "step"
    outer: ClassVar[Remedy]
    """The remedy that compiles the whole step."""

    def applies(self, call: Call) -> bool:
        """Return whether the whole step could be compiled."""
        return self.outer.applies(call)

    def apply(self, call: Call) -> Call:
        """Return the call with compiled functions, if it loses something where it is one."""
        if not call.seen.get("work") and self.outer.name not in call.seen.get("failed", ()):
            raise DoesNotApply(f"{self.outer.name} does it")
        chosen = {id(use.function) for use in self._chosen(call)}
        if not chosen:
            raise DoesNotApply("the step calls no function of arrays")

        def changed(function: Any) -> Any:
            return self.compiled(function) if id(function) in chosen else function

        return with_functions(call, _is_users(call), changed)

    def write(self, call: Call) -> str:
        """Return how each function is compiled."""
        return "; ".join(
            f"{where(use.function)}{self.text(use.function)}" for use in self._chosen(call)
        )

    def compiled(self, function: Any) -> Callable[..., Any]:
        """Return a compiled function."""
        raise NotImplementedError

    def text(self, function: Any) -> str:
        """Return the code to type for a function."""
        raise NotImplementedError

    @staticmethod
    def _chosen(call: Call) -> list[Use]:
        return [use for use in uses_of(call, _is_users(call), "calls") if _is_of_arrays(use)]


class InnerFunctions(_Inner):
    """A tf.function for each."""

    name, outer = "@tf.function for what the step calls", OneFunction()

    def compiled(self, function: Any) -> Callable[..., Any]:
        """Return a tf.function."""
        tf: Any = loaded_tensorflow()
        found: Callable[..., Any] = tf.function(function)
        return found

    def text(self, function: Any) -> str:  # noqa: ARG002 - that of JAX needs it
        """Return the decorator."""
        return "@tf.function"


class InnerJit(_Inner):
    """A jax.jit for each."""

    name, outer = "@jax.jit for what the step calls", OneJit()

    def compiled(self, function: Any) -> Callable[..., Any]:
        """Return a function that jax.jit compiles; a method is compiled for each object."""
        jax: Any = loaded_jax()
        if not _is_method(function):
            found: Callable[..., Any] = jax.jit(function)
            return found
        by_object: dict[int, Callable[..., Any]] = {}

        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if id(self) not in by_object:
                by_object[id(self)] = jax.jit(functools.partial(function, self))
            return by_object[id(self)](*args, **kwargs)

        return run

    def text(self, function: Any) -> str:
        """Return the decorator, or what compiles a method."""
        name = function.__name__
        return f"self.{name} = jax.jit(self.{name})" if _is_method(function) else "@jax.jit"


REMEDIES: tuple[Remedy, ...] = (InnerFunctions(), InnerJit())


def _is_users(call: Call) -> IsOne:
    """Return what tells plain functions of the user's, but for the step's own."""
    step = code_of(call.step)

    def is_one(value: Any) -> bool:
        if not isinstance(value, types.FunctionType) or value.__name__.startswith("__"):
            return False
        code = value.__code__
        return code is not step and line_of_code(code) is not None

    return is_one


def _is_method(function: types.FunctionType) -> bool:
    return _SELF in function.__code__.co_varnames[:1]


def _is_of_arrays(use: Use) -> bool:
    """Return whether a function was called with arrays and numbers alone, and returned arrays."""
    taken = [leaf for call in use.calls for name in call if name != _SELF for leaf in call[name]]
    is_taken = all(len(leaf) == 2 or isinstance(leaf[0], (int, float)) for leaf in taken)
    return is_taken and all(
        leaves and all(len(leaf) == 2 for leaf in leaves) for leaves in use.returned
    )
