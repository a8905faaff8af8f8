"""The variants of a step that are to be compared: what they must be, and whether they compute the same apart from each other."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pytest_tfperf.capture.loop import required_parameters
from pytest_tfperf.compiler.variable_use import Use, refuse_shared, use_recorded
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.tf_runtime import sync_devices
from pytest_tfperf.variants.outputs import Leaves, Tolerance, check_outputs, leaves_of

__tracebackhide__ = True

_NO_DATA = (
    "give compare its data=, or bind what the step needs, as in {{{name!r}: lambda: step(batch)}}"
)


class Variant:
    """
    A step with a name, called as the step itself.

    Of its first call the output is kept, of the second which variables it uses: those that the first creates are its own.
    """

    def __init__(self, name: str, step: Callable[[], Any]) -> None:
        self.name, self.step = name, step
        self.leaves: Leaves | None = None
        self.use: Use | None = None

    def __call__(self) -> Any:
        """One step, and what it returned."""
        return self.step() if self.use is not None else self._look()

    def _look(self) -> Any:
        if self.leaves is None:
            output = self.step()
            self.leaves = leaves_of(output)
            return output
        with use_recorded() as use:
            output = self.step()
        self.use = use
        return output


def variants_of(steps: Mapping[str, Callable[[], Any]]) -> tuple[Variant, ...]:
    """
    The variants with these names, that need no data.

    Raises:
        TypeError: If they are no mapping of names to callables.
        CaptureError: If they are fewer than two, or need arguments.
    """
    _check_all(steps)
    for name, step in steps.items():
        if required_parameters(step):
            raise CaptureError(f"variant {name!r} needs arguments; {_NO_DATA.format(name=name)}")
    return tuple(Variant(name, step) for name, step in steps.items())


def data_of(steps: Mapping[str, Callable[..., Any]], data: Any) -> dict[str, Iterable[Any]]:
    """
    The data of each variant: its own where they are a mapping, else the same for all.

    Raises:
        TypeError: If the variants are no mapping of names to callables, or some data nothing to iterate over.
        CaptureError: If the variants are fewer than two, or the names of the data are not theirs.
    """
    _check_all(steps)
    if isinstance(data, Mapping) and set(data) != set(steps):
        raise CaptureError(
            f"the data are of {_listed(data)}, and the variants are {_listed(steps)}: the same names are wanted"
        )
    found = dict(data) if isinstance(data, Mapping) else dict.fromkeys(steps, data)
    for name, own in found.items():
        if not hasattr(own, "__iter__") and not hasattr(own, "__getitem__"):
            raise TypeError(
                f"the data of {name!r} must be something to iterate over, but are {type(own).__name__}: {own!r:.80}"
            )
    return found


def profile_names(variants: Iterable[str], comparison: str | None) -> dict[str, str]:
    """The names of the variants' profiles, by variant, in a comparison of this name."""
    return {variant: f"{comparison} {variant}" if comparison else variant for variant in variants}


def _check_all(steps: Mapping[str, Callable[..., Any]]) -> None:
    if not isinstance(steps, Mapping):
        raise TypeError(
            f'compare takes a dict of steps by name, {{"plain": step, "xla": other_step}}, not {type(steps).__name__}'
        )
    for name, step in steps.items():
        _check(name, step)
    if len(steps) < 2:
        raise CaptureError(f"compare takes two or more variants, and got {_listed(steps)}")


def _listed(names: Iterable[object]) -> str:
    return ", ".join(map(repr, names)) or "none"


def check_variants(variants: Sequence[Variant], tolerance: Tolerance | None) -> tuple[str, ...]:
    """
    What may be compared trains nothing in common and, unless there is no tolerance, gives the same in its first step.

    Variants that have not been called twice yet are. Gives notes on what could not be looked at.

    Raises:
        CaptureError: If one writes a variable that another uses.
        AssertionError: If outputs differ.
    """
    for variant in variants:
        while variant.use is None:
            variant()
    sync_devices()
    uses = {variant.name: variant.use for variant in variants if variant.use is not None}
    refuse_shared(uses)
    notes = tuple(dict.fromkeys(use.why for use in uses.values() if use.why))
    if tolerance is None:
        return notes
    return notes + check_outputs(
        {variant.name: variant.leaves or {} for variant in variants}, tolerance
    )


def _check(name: object, step: object) -> None:
    if not isinstance(name, str) or not name:
        raise TypeError(f"a variant is named by a text, not {name!r}")
    if not callable(step):
        raise TypeError(
            f"variant {name!r} must be a callable that runs one step, but is {type(step).__name__}: {step!r:.80}"
        )
    if inspect.iscoroutinefunction(step):
        raise TypeError(
            f"variant {name!r} is a coroutine function; pass a plain function that runs one step, e.g. with asyncio.run"
        )


class FirstOutput:
    """A step, called as it is; `leaves` is what its first call returned."""

    def __init__(self, step: Callable[..., Any]) -> None:
        self.step = step
        self.leaves: Leaves | None = None
        self.python_function = (
            getattr(step, "python_function", None) or getattr(step, "call", None) or step
        )  # for its signature

    def __call__(self, *arguments: Any) -> Any:
        """One step, and what it returned."""
        output = self.step(*arguments)
        if self.leaves is None:
            self.leaves = leaves_of(output)
        return output
