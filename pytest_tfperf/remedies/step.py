"""Remedies of the step: compiled functions of TensorFlow and JAX."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pytest_tfperf.frameworks.framework import JAX, TENSORFLOW
from pytest_tfperf.frameworks.jax import loaded_jax
from pytest_tfperf.frameworks.tensorflow import loaded_tensorflow
from pytest_tfperf.remedies.remedy import Call, NotTried, Remedy


def is_function(step: Any) -> bool:
    """Return whether a step is a tf.function."""
    tf = loaded_tensorflow()
    return tf is not None and isinstance(step, tf.types.experimental.PolymorphicFunction)


def _is_called(call: Call, framework: str) -> bool:
    """Return whether it is a step of a framework that the loop calls, and not one of Keras."""
    return call.framework == framework and call.keras is None


class OneFunction(Remedy):
    """One tf.function around an eager step."""

    name, kind = "@tf.function", "step"

    def applies(self, call: Call) -> bool:
        """Return whether the step runs ops eagerly, or it is not known."""
        is_eager = call.number("eager_ops") != 0 and not is_function(call.step)
        return _is_called(call, TENSORFLOW) and is_eager

    def apply(self, call: Call) -> Call:
        """Return the call with a tf.function."""
        tf: Any = loaded_tensorflow()
        return replace(call, step=tf.function(call.step))

    def write(self, call: Call) -> str:
        """Return the decorator."""
        return f"{_where(call.step)}@tf.function"


class JitCompile(Remedy):
    """XLA for the step."""

    name, kind = "jit_compile=True", "step"

    def applies(self, call: Call) -> bool:
        """Return whether it is a step of TensorFlow that XLA does not compile whole."""
        # private: the argument of a tf.function (2.18 to 2.22)
        compiled = getattr(call.step, "_jit_compile", None)
        is_whole = compiled or call.number("xla_coverage") == 1
        return _is_called(call, TENSORFLOW) and not is_whole

    def apply(self, call: Call) -> Call:
        """Return the call with compiled functions."""
        return replace(call, step=_rewrapped(call.step, jit_compile=True))

    def write(self, call: Call) -> str:
        """Return the decorator."""
        return f"{_where(call.step)}@tf.function(jit_compile=True)"


class Tensors(Remedy):
    """Tensors in place of Python's numbers, each of which is traced anew."""

    name, kind = "tensors in place of Python's numbers", "step"

    def applies(self, call: Call) -> bool:
        """Return whether a function of TensorFlow is traced again and again."""
        return _is_called(call, TENSORFLOW) and bool(call.number("retraces"))

    def apply(self, call: Call) -> Call:
        """Return the call with arguments made tensors."""
        tf: Any = loaded_tensorflow()

        def converted(function: Callable[..., Any]) -> Callable[..., Any]:
            def run(*args: Any, **kwargs: Any) -> Any:
                given = tf.nest.map_structure(_as_tensor, (args, kwargs))
                return function(*given[0], **given[1])

            return run

        if is_function(call.step):
            return replace(call, step=_like(call.step, converted(call.step)))
        return replace(call, step=_with_functions(call.step, converted))

    def write(self, call: Call) -> str:
        """Return how a number is passed."""
        return f"{_where(call.step)}pass tf.constant(x) in place of a Python number x"


class OneJit(Remedy):
    """One jax.jit around the step."""

    name, kind = "@jax.jit", "step"

    def applies(self, call: Call) -> bool:
        """Return whether it is a step of JAX that is not one compiled function."""
        return _is_called(call, JAX) and not hasattr(call.step, "lower")

    def apply(self, call: Call) -> Call:
        """Return the call with a compiled function."""
        jax: Any = loaded_jax()
        return replace(call, step=_like(call.step, jax.jit(call.step)))

    def write(self, call: Call) -> str:
        """Return the decorator."""
        return f"{_where(call.step)}@jax.jit"


REMEDIES: tuple[Remedy, ...] = (OneFunction(), JitCompile(), Tensors(), OneJit())


def _rewrapped(step: Any, **options: Any) -> Callable[..., Any]:
    """Return a step whose tf.function has further options, or the functions that it calls."""
    tf: Any = loaded_tensorflow()

    def rewrapped(function: Any) -> Any:
        signature = function.input_signature
        return tf.function(function.python_function, input_signature=signature, **options)

    if is_function(step):
        return _like(step, rewrapped(step))
    try:
        return _with_functions(step, rewrapped)
    except NotTried:
        return _like(step, tf.function(step, **options))


def _with_functions(step: Any, changed: Callable[[Any], Any]) -> Callable[..., Any]:
    """
    Return a copy of a Python step with its tf.functions changed.

    Raises:
        NotTried: If it calls none by a name of its own.
    """
    if not isinstance(step, types.FunctionType):
        raise NotTried("the functions that the step calls cannot be reached")
    code = step.__code__
    named = {name: step.__globals__.get(name) for name in code.co_names}
    globals_ = {name: changed(one) for name, one in named.items() if is_function(one)}
    cells = dict(zip(code.co_freevars, step.__closure__ or (), strict=True))
    closed = {name: one for name, cell in cells.items() if is_function(one := _content(cell))}
    if not globals_ and not closed:
        raise NotTried("the step calls no tf.function by a name of its own")
    closure = tuple(
        types.CellType(changed(closed[name])) if name in closed else cell
        for name, cell in cells.items()
    )
    scope = {**step.__globals__, **globals_} if globals_ else step.__globals__
    copied = types.FunctionType(code, scope, step.__name__, step.__defaults__, closure)
    copied.__kwdefaults__ = step.__kwdefaults__
    return copied


def _content(cell: Any) -> Any:
    """Return what a cell holds, None if it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _like(step: Any, changed: Callable[..., Any]) -> Callable[..., Any]:
    """Return a changed step that takes elements as the first one does."""

    def run(*args: Any) -> Any:
        return changed(*args)

    run.python_function = getattr(step, "python_function", step)  # type: ignore[attr-defined]
    return run


def _as_tensor(value: Any) -> Any:
    """Return a number as a tensor; bools choose branches of Python, and stay."""
    tf: Any = loaded_tensorflow()
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return tf.constant(value) if is_number else value


def _where(step: Any) -> str:
    """Return the line of a step's function in the user's code, and two spaces."""
    from pytest_tfperf.compiler.source_lines import line_of_code

    function = inspect.unwrap(getattr(step, "python_function", step))
    line = line_of_code(getattr(function, "__code__", None))
    return f"{line}  " if line else ""
