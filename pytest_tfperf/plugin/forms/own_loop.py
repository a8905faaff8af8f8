"""Profile of a loop that the test writes itself, over `tf_profile.steps(data)`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from pytest_tfperf.capture.loop import each_step
from pytest_tfperf.capture.state import restored
from pytest_tfperf.capture.windows import Windows
from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.plugin.forms.bare_trace import skip_disabled
from pytest_tfperf.plugin.profiles import Profiles

__tracebackhide__ = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    """The way in which a loop is profiled."""

    wanted: Wanted
    """Limits and windows."""
    steps_per_call: int
    """Steps that loop inside an iteration."""
    examples_per_step: int | None
    """Examples of a step; None for the batch size."""
    restore: Any
    """Keras models, optimizers or variables whose state is put back afterwards."""


def profiled_elements(
    profiles: Profiles, data: Iterable[Any], name: str | None, options: LoopOptions
) -> Iterator[Any]:
    """
    Yield the elements of `data` until the windows are full.

    Args:
        profiles: The profiles of the test.
        data: A dataset, or an iterable that can start again.
        name: Name of the profile.
        options: The way in which the loop is profiled.
    """
    if profiles.test.options.disable:
        yield next(iter(data))
        skip_disabled()
    taken = profiles.take_name(name)

    def finish(windows: Windows) -> None:
        inputs = inputs_of(windows, options.steps_per_call)
        profiles.finish(windows, taken, options.wanted, None, inputs, options.examples_per_step)

    with ExitStack() as stack:
        stack.enter_context(restored(options.restore))
        windows = stack.enter_context(
            profiles.windows(taken, options.wanted, "step", options.steps_per_call)
        )
        try:
            yield from each_step(windows, data)
        except GeneratorExit:
            windows.close(
                f"the loop over tf_profile.steps was left after {windows.n_steps} steps, "
                "before all windows were full; let the loop end by itself"
            )
            finish(windows)
            raise
    finish(windows)


def inputs_of(windows: Windows, steps_per_call: int) -> Mapping[str, Any]:
    """Return the inputs of the steps in windows, and how many steps a call runs."""
    return {**windows.inputs, "steps_per_call": steps_per_call}
