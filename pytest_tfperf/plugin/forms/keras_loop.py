"""Profile of a Keras loop: `fit`, `evaluate` or `predict`."""

from __future__ import annotations

from contextlib import ExitStack

from pytest_tfperf.capture.keras_data import (
    KerasCall,
    examples_per_step,
    keras_workload,
    noting_first_batch,
    sample_again,
    with_seen_batch,
)
from pytest_tfperf.capture.keras_loop import KINDS, run_keras
from pytest_tfperf.capture.windows import Windows
from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.plugin.profiles import Profiles
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
