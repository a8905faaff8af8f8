"""Check the variants of a step that are to be compared."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pytest_tfperf.capture.loop import required_parameters
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.in_use import synchronise
from pytest_tfperf.variants.outputs import Leaves, Tolerance, check_outputs, leaves_of

__tracebackhide__ = True

_NO_DATA = (
    "give compare its data=, or bind what the step needs, as in {{{name!r}: lambda: step(batch)}}"
)


class Variant:
    """A step with a name, called as the step itself. It keeps the output of its first call."""

    def __init__(self, name: str, step: Callable[[], Any]) -> None:
        self.name, self.step = name, step
        self.leaves: Leaves | None = None

    def __call__(self) -> Any:
        """Run one step, and return its output."""
        output = self.step()
        if self.leaves is None:
            self.leaves = leaves_of(output)
        return output


def variants_of(steps: Mapping[str, Callable[[], Any]]) -> tuple[Variant, ...]:
    """
    Return named variants that need no data.

    What is no mapping of names to callables raises TypeError. Fewer than two, or one that needs
    arguments, raise CaptureError.
    """
    _check_all(steps)
    for name, step in steps.items():
        if required_parameters(step):
            raise CaptureError(f"variant {name!r} needs arguments; {_NO_DATA.format(name=name)}")
    return tuple(Variant(name, step) for name, step in steps.items())


def data_of(steps: Mapping[str, Callable[..., Any]], data: Any) -> dict[str, Iterable[Any]]:
    """
    Return the data of each variant: its own from a mapping by variant, else the same for all.

    What cannot be called or iterated over raises TypeError; fewer than two variants or data of
    other names raise CaptureError.
    """
    _check_all(steps)
    if isinstance(data, Mapping) and set(data) != set(steps):
        raise CaptureError(
            f"the data are of {_listed(data)}, and the variants are {_listed(steps)}: "
            "the same names are wanted"
        )
    found = dict(data) if isinstance(data, Mapping) else dict.fromkeys(steps, data)
    for name, own in found.items():
        if not hasattr(own, "__iter__") and not hasattr(own, "__getitem__"):
            raise TypeError(
                f"the data of {name!r} must be something to iterate over, "
                f"but are {type(own).__name__}: {own!r:.80}"
            )
    return found


def profile_names(variants: Iterable[str], comparison: str | None) -> dict[str, str]:
    """Return the names of the profiles by variant, in a comparison of this name."""
    return {variant: f"{comparison} {variant}" if comparison else variant for variant in variants}


def _check_all(steps: Mapping[str, Callable[..., Any]]) -> None:
    if not isinstance(steps, Mapping):
        raise TypeError(
            'compare takes a dict of steps by name, {"plain": step, "xla": other_step}, '
            f"not {type(steps).__name__}"
        )
    for name, step in steps.items():
        _check(name, step)
    if len(steps) < 2:
        raise CaptureError(f"compare takes two or more variants, and got {_listed(steps)}")


def _listed(names: Iterable[object]) -> str:
    return ", ".join(map(repr, names)) or "none"


def check_variants(variants: Sequence[Variant], tolerance: Tolerance | None) -> tuple[str, ...]:
    """
    Check that the first outputs of variants agree, and return what could not be compared.

    A variant that has not run yet is called once. Outputs that differ raise AssertionError; without
    a tolerance they are not compared.
    """
    for variant in variants:
        if variant.leaves is None:
            variant()
    synchronise()
    if tolerance is None:
        return ()
    return check_outputs({variant.name: variant.leaves or {} for variant in variants}, tolerance)


def _check(name: object, step: object) -> None:
    if not isinstance(name, str) or not name:
        raise TypeError(f"a variant is named by a text, not {name!r}")
    if not callable(step):
        raise TypeError(
            f"variant {name!r} must be a callable that runs one step, "
            f"but is {type(step).__name__}: {step!r:.80}"
        )
    if inspect.iscoroutinefunction(step):
        raise TypeError(
            f"variant {name!r} is a coroutine function; "
            "pass a plain function that runs one step, e.g. with asyncio.run"
        )


class FirstOutput:
    """A step that keeps the output of its first call in `leaves`."""

    def __init__(self, step: Callable[..., Any]) -> None:
        self.step = step
        self.leaves: Leaves | None = None
        self.python_function = (
            getattr(step, "python_function", None) or getattr(step, "call", None) or step
        )  # for its signature

    def __call__(self, *arguments: Any) -> Any:
        """Run one step, and return its output."""
        output = self.step(*arguments)
        if self.leaves is None:
            self.leaves = leaves_of(output)
        return output
