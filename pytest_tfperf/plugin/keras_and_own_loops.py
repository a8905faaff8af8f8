"""Profiles of loops: of Keras, and of those that tests write over `tf_profile.steps(data)`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

from pytest_tfperf.capture.keras_data import (
    KerasCall,
    examples_per_step,
    keras_workload,
    noting_first_batch,
    sample_again,
    with_seen_batch,
)
from pytest_tfperf.capture.keras_loop import KINDS, run_keras
from pytest_tfperf.capture.loop import each_step
from pytest_tfperf.capture.state import restored
from pytest_tfperf.capture.windows import Windows
from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.plugin.profiles import Profiles, skip_disabled
from pytest_tfperf.results import Profile

__tracebackhide__ = True


def profile_keras_loop(
    profiles: Profiles, call: KerasCall, name: str, wanted: Wanted, stop: bool
) -> Profile:
    """
    Profile a Keras loop.

    Args:
        profiles: The profiles of the test.
        call: The loop.
        name: Name of the profile.
        wanted: Limits and options.
        stop: Whether to end the loop when the windows are full.
    """
    workload = keras_workload(call)
    is_taking_turns = stop and profiles.test.child is not None
    goes_on = is_taking_turns and not hasattr(call.data(), "__next__")  # it cannot begin again
    call, first = noting_first_batch(call)
    with ExitStack() as stack:

        def open_windows(available: int | None, per_execution: int) -> Windows:
            windows = stack.enter_context(
                profiles.windows(
                    name, wanted, KINDS[call.method], per_execution, available, goes_on
                )
            )
            windows.inputs = workload
            return windows

        result, windows = run_keras(call, open_windows, stop, goes_on)
    windows.observations.elements = sample_again(call, workload["batch"] is None, first)
    examples = examples_per_step(call, workload)
    workload = with_seen_batch(workload, windows.observations.elements)
    return profiles.finish(windows, name, wanted, result, workload, examples)


def profiled_elements(
    profiles: Profiles,
    data: Iterable[Any],
    name: str | None,
    wanted: Wanted,
    steps_per_call: int,
    examples_per_step: int | None,
    restore: Any,
) -> Iterator[Any]:
    """
    Yield the elements of `data` until the windows are full.

    Args:
        profiles: The profiles of the test.
        data: A dataset, or an iterable that can start again.
        name: Name of the profile.
        wanted: Limits and options.
        steps_per_call: Steps that loop inside an iteration.
        examples_per_step: Examples of a step; None for the batch size.
        restore: Keras models, optimizers or variables whose state is put back afterwards.
    """
    if profiles.test.options.disable:
        yield next(iter(data))
        skip_disabled()
    taken = profiles.take_name(name)

    def finish(windows: Windows) -> None:
        workload = {**windows.inputs, "steps_per_call": steps_per_call}
        profiles.finish(windows, taken, wanted, None, workload, examples_per_step)

    with ExitStack() as stack:
        stack.enter_context(restored(restore))
        windows = stack.enter_context(profiles.windows(taken, wanted, "step", steps_per_call))
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
