"""Profiling the body of a test that has the marker and not the fixture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytest_tfperf.analysis.steps.detect import find_steps
from pytest_tfperf.capture.keras import loops_replaced
from pytest_tfperf.capture.keras_data import KerasCall
from pytest_tfperf.capture.sessions import read_session
from pytest_tfperf.compiler.step_calls import Calls, calls_recorded
from pytest_tfperf.errors import CaptureError, TraceError
from pytest_tfperf.plugin.profiles import Profiles

__tracebackhide__ = True


@contextmanager
def profiled_body(profiles: Profiles) -> Iterator[None]:
    """
    Profile each outermost Keras loop in the context, else all of it as one trace.

    Raises:
        CaptureError: If there is no step in it, or it cannot be known which calls are the steps.
    """
    looped = False
    session = profiles.start_session()

    def profiled(call: KerasCall) -> Any:
        nonlocal looped
        looped = True
        session.discard()
        before = sum(name.split()[0] == call.method for name in profiles.names)
        name = profiles.take_name(f"{call.method} {before + 1}" if before else call.method)
        return profiles.keras_loop(call, name, profiles.settings.wanted, stop=False).result

    try:
        with loops_replaced(profiled), calls_recorded(lambda: not looped) as calls:
            yield
    except BaseException:
        session.discard()
        raise
    if not looped:
        _one_trace(profiles, session.stop(), calls)


def _one_trace(profiles: Profiles, trace: Path, calls: Calls) -> None:
    """The profile of all of the body; its steps are those that it marks, else the calls of its one function."""
    name = profiles.take_name(None)
    try:
        if find_steps(read_session(trace)).source == "function":
            calls.each_is_step()
        else:
            calls.why = (
                "which functions a step calls is known of steps that tf_profile drives or brackets"
            )
        profile = profiles.finish_bare(trace, name, calls, profiles.settings.wanted)
    except TraceError as error:
        raise CaptureError(
            "no step found in this test: it ran no Keras fit, evaluate or predict, called no tf.function and marked no step. "
            "Use the fixture: tf_profile(step, data), or for batch in tf_profile.steps(data)"
        ) from error
    if profile.step_source == "function" and profile.n_dropped > 1:
        raise CaptureError(
            f"this test calls several functions ({profile.steps[0].name.rpartition(' ')[0]} most often, others {profile.n_dropped} "
            "times): which of them is the step cannot be known. Use the fixture: tf_profile(step, data), or for batch in "
            "tf_profile.steps(data)"
        )
