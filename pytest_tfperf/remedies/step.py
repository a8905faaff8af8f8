"""Remedies of the step of TensorFlow: its functions, their traces, and the types of their ops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from pytest_tfperf.frameworks.framework import TENSORFLOW
from pytest_tfperf.frameworks.tensorflow import loaded_tensorflow
from pytest_tfperf.remedies.functions import (
    Names,
    Use,
    is_function,
    like,
    used,
    uses_of,
    where,
    with_functions,
    within,
)
from pytest_tfperf.remedies.remedy import Call, NotTried, Remedy

_MIXED = "auto_mixed_precision"  # tf.config.optimizer.set_experimental_options


def _is_called(call: Call) -> bool:
    """Return whether it is a step of TensorFlow that the loop calls, and not one of Keras."""
    return call.framework == TENSORFLOW and call.keras is None


class OneFunction(Remedy):
    """One tf.function around an eager step."""

    name, kind = "@tf.function", "step"

    def applies(self, call: Call) -> bool:
        """Return whether the step runs ops eagerly, or it is not known."""
        is_eager = call.number("eager_ops") != 0 and not is_function(call.step)
        return _is_called(call) and is_eager

    def apply(self, call: Call) -> Call:
        """Return the call with a tf.function."""
        tf: Any = loaded_tensorflow()
        return replace(call, step=tf.function(call.step))

    def write(self, call: Call) -> str:
        """Return the decorator."""
        return f"{where(call.step)}@tf.function"


class JitCompile(Remedy):
    """XLA for the step."""

    name, kind = "jit_compile=True", "step"

    def applies(self, call: Call) -> bool:
        """Return whether it is a step of TensorFlow that XLA does not compile whole."""
        # private: the argument of a tf.function (2.18 to 2.22)
        compiled = getattr(call.step, "_jit_compile", None)
        is_whole = compiled or call.number("xla_coverage") == 1
        return _is_called(call) and not is_whole

    def apply(self, call: Call) -> Call:
        """Return the call with compiled functions."""
        tf: Any = loaded_tensorflow()
        try:
            called = used(call, is_function, lambda _: True)
        except NotTried:
            return replace(call, step=like(call.step, tf.function(call.step, jit_compile=True)))

        def compiled(function: Any) -> Any:
            return rewrapped(function, jit_compile=True) if id(function) in called else function

        return with_functions(call, is_function, compiled)

    def write(self, call: Call) -> str:
        """Return the decorator of each function, or of the step if it calls none."""
        found = [use.function for use in uses_of(call, is_function)] or [call.step]
        return "; ".join(f"{where(one)}@tf.function(jit_compile=True)" for one in found)


class _OfRetraces(Remedy):
    """A remedy of functions that are traced again and again."""

    kind = "step"

    def applies(self, call: Call) -> bool:
        """Return whether the profile has seen that."""
        return _is_called(call) and bool(call.number("retraces"))


class Tensors(_OfRetraces):
    """Tensors in place of Python's numbers, each of which is traced anew."""

    name = "tensors in place of Python's numbers"

    def apply(self, call: Call) -> Call:
        """Return the call with arguments made tensors."""
        tf: Any = loaded_tensorflow()
        numbers = used(call, is_function, _changing_numbers)

        def converted(function: Any) -> Callable[..., Any]:
            wanted = numbers.get(id(function), ())
            names = Names(function)

            def run(*args: Any, **kwargs: Any) -> Any:
                places = range(len(args))
                given = (tf.constant(args[n]) if names.at(n) in wanted else args[n] for n in places)
                named = {k: tf.constant(v) if k in wanted else v for k, v in kwargs.items()}
                return function(*given, **named)

            return run if wanted else cast("Callable[..., Any]", function)

        return with_functions(call, is_function, converted)

    def write(self, call: Call) -> str:
        """Return how numbers are passed, where the function of them is."""
        found = ((use.function, _changing_numbers(use)) for use in uses_of(call, is_function))
        return "; ".join(
            f"{where(one)}pass {', '.join(f'{name}=tf.constant({name})' for name in names)}"
            for one, names in found
            if names
        )


class Relaxed(_OfRetraces):
    """Traces for sizes of any length, where two sizes were seen."""

    name = "reduce_retracing=True"

    def apply(self, call: Call) -> Call:
        """Return the call with functions that relax their shapes."""
        wanted = used(call, is_function, lambda use: _relaxes(use.function))

        def relaxed(function: Any) -> Any:
            is_it = id(function) in wanted
            return rewrapped(function, reduce_retracing=True) if is_it else function

        return with_functions(call, is_function, relaxed)

    def write(self, call: Call) -> str:
        """Return the decorator of each function."""
        found = [use.function for use in uses_of(call, is_function) if _relaxes(use.function)]
        return "; ".join(f"{where(one)}@tf.function(reduce_retracing=True)" for one in found)


class Signature(_OfRetraces):
    """The input signature that would have held for all calls."""

    name = "input_signature=[…]"

    def apply(self, call: Call) -> Call:
        """Return the call with functions of one signature."""
        signatures = used(call, is_function, _signature)

        def signed(function: Any) -> Any:
            signature = signatures.get(id(function))
            return rewrapped(function, input_signature=signature) if signature else function

        return with_functions(call, is_function, signed)

    def write(self, call: Call) -> str:
        """Return the decorator of each function."""
        found = ((use.function, _signature(use)) for use in uses_of(call, is_function))
        return "; ".join(
            f"{where(one)}@tf.function(input_signature=[{', '.join(map(_written, specs))}])"
            for one, specs in found
            if specs
        )


class MixedPrecision(Remedy):
    """Grappler's rewrite of float32 ops to float16, which GPUs compute faster."""

    name, kind = "auto_mixed_precision", "step"
    code = (
        'tf.config.optimizer.set_experimental_options({"auto_mixed_precision": True}) before the '
        "first step, with a LossScaleOptimizer where the step trains"
    )
    computes_differently = "different: it computes in float16"

    def applies(self, call: Call) -> bool:
        """Return whether a GPU runs the step in functions that Grappler may change."""
        tf: Any = loaded_tensorflow()
        # Grappler leaves functions that XLA compiles whole to XLA.
        is_whole = getattr(call.step, "_jit_compile", None) or call.number("xla_coverage") == 1
        return (
            call.framework == TENSORFLOW
            and not is_whole
            and bool(tf.config.list_logical_devices("GPU"))
            and not tf.config.optimizer.get_experimental_options().get(_MIXED)
        )

    def apply(self, call: Call) -> Call:
        """Return the call whose turns have the option."""
        return within(call, _mixed_precision)


REMEDIES: tuple[Remedy, ...] = (
    Tensors(),
    Relaxed(),
    Signature(),
    OneFunction(),
    JitCompile(),
    MixedPrecision(),
)
"""Those of a cause that the profile has seen come first."""


def rewrapped(function: Any, **options: Any) -> Any:
    """Return a tf.function of the same Python function with other options."""
    tf: Any = loaded_tensorflow()
    # private: the arguments of a tf.function (2.18 to 2.22)
    own = {
        "input_signature": function.input_signature,
        "autograph": getattr(function, "_autograph", True),
        "jit_compile": getattr(function, "_jit_compile", None),
        "reduce_retracing": getattr(function, "_reduce_retracing", False),
    }
    return tf.function(function.python_function, **{**own, **options})


@contextmanager
def _mixed_precision() -> Iterator[None]:
    """Let Grappler rewrite what is called, as the user's options were behind it."""
    options: Any = loaded_tensorflow().config.optimizer  # type: ignore[union-attr]
    before = options.get_experimental_options().get(_MIXED, False)
    options.set_experimental_options({_MIXED: True})
    try:
        yield
    finally:
        options.set_experimental_options({_MIXED: before})


def _relaxes(function: Any) -> bool:
    """Return whether a function does not relax its shapes yet."""
    is_open = function.input_signature is None
    return is_open and not getattr(function, "_reduce_retracing", False)  # private (2.18 to 2.22)


def _changing_numbers(use: Use) -> list[str]:
    """Return arguments that are another number of Python in some calls; bools choose branches."""
    return [
        name
        for name in use.arguments
        if len({tuple(leaves) for leaves in use.values(name)}) > 1
        and all(
            len(leaves) == 1 and type(leaves[0][0]) in (int, float) for leaves in use.values(name)
        )
    ]


def _signature(use: Use) -> list[Any]:
    """Return a specification of each argument that holds in all calls; empty if there is none."""
    tf: Any = loaded_tensorflow()
    if use.function.input_signature is not None or len({str(call) for call in use.calls}) < 2:
        return []
    found = []
    for name in use.arguments:
        leaves = [one[0] if len(one) == 1 else () for one in use.values(name)]
        if len(leaves) < len(use.calls):
            return []
        if all(len(leaf) == 1 and type(leaf[0]) in (int, float) for leaf in leaves):
            is_whole = all(type(leaf[0]) is int for leaf in leaves)
            found.append(tf.TensorSpec([], tf.int32 if is_whole else tf.float32))
        elif len({(len(leaf[0]), leaf[1]) if len(leaf) == 2 else None for leaf in leaves}) == 1:
            if len(leaves[0]) != 2:
                return []
            sizes = [set(axis) for axis in zip(*(leaf[0] for leaf in leaves), strict=True)]
            shape = [axis.pop() if len(axis) == 1 else None for axis in sizes]
            found.append(tf.TensorSpec(shape, leaves[0][1]))
        else:
            return []
    return found


def _written(spec: Any) -> str:
    return f"tf.TensorSpec({spec.shape.as_list()}, tf.{spec.dtype.name})"
