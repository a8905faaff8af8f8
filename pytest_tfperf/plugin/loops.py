"""Profiles of loops: of Keras, of those that tests write, of bracketed steps, of whole tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from pytest_tfperf.capture.inspection import StepInspection
from pytest_tfperf.capture.keras_data import (
    KerasCall,
    examples_per_step,
    keras_workload,
    noting_first_batch,
    sample_again,
    with_seen_batch,
)
from pytest_tfperf.capture.keras_loop import KINDS, loops_replaced, run_keras
from pytest_tfperf.capture.loop import Bracketed, each_step
from pytest_tfperf.capture.sessions import ReadTraces, Session, read_sessions, started_later
from pytest_tfperf.capture.state import restored
from pytest_tfperf.capture.windows import Windows
from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.compiler.step_calls import Calls, Probe, calls_recorded
from pytest_tfperf.errors import CaptureError, TraceError
from pytest_tfperf.facts.executions import alternate, runs_unlike_programs
from pytest_tfperf.facts.host_activity import framework, frameworks_of
from pytest_tfperf.facts.steps import Steps, find_steps, only_own
from pytest_tfperf.frameworks.framework import JAX
from pytest_tfperf.frameworks.in_use import other_frameworks, synchronise, untraced_names
from pytest_tfperf.frameworks.jax_objects import JaxObjects, jax_objects
from pytest_tfperf.frameworks.jax_traces import users_traced
from pytest_tfperf.plugin.profiles import (
    Profiles,
    asks_for_ablation,
    skip_disabled,
    traces_reported,
)
from pytest_tfperf.recording import Recording
from pytest_tfperf.results import Profile
from pytest_tfperf.text import and_more
from pytest_tfperf.trace.xspace import Trace

__tracebackhide__ = True

_BARE = (
    "graphs are looked at where tf_profile drives the steps: tf_profile(step, data), "
    "tf_profile.steps(data) or a Keras loop"
)
_NO_TRACE = (
    "steps of {} are not traced: pass the step to tf_profile, or use a Keras loop, which are timed"
)
_NAMED = 3  # functions
_BY_FIXTURE = "tf_profile(step, data), or for batch in tf_profile.steps(data)"


def profile_keras_loop(
    profiles: Profiles, call: KerasCall, name: str, wanted: Wanted, stop: bool
) -> Profile:
    """Profile a Keras loop, which ends when the windows are full if it may `stop`."""
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
    """Yield the elements of `data`, which can start again, until the windows are full."""
    if profiles.test.options.disable:
        for element in data:
            yield element
            break
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


class BracketedTrace:
    """Trace of the code in its context; `as t` gives the object that marks steps."""

    # A class, since a generator's context would show frames of contextlib in tracebacks.

    def __init__(self, profiles: Profiles, name: str, wanted: Wanted, disabled: bool) -> None:
        self._profiles = profiles
        self._name = name
        self._wanted = wanted
        self._disabled = disabled
        self._contexts = ExitStack()
        self._session: Session | None = None
        self._calls = Calls()

    def __enter__(self) -> Bracketed:
        if not self._disabled:
            with ExitStack() as contexts:
                self._session = contexts.enter_context(self._profiles.session())
                self._calls = contexts.enter_context(calls_recorded())
                contexts.enter_context(traces_reported(self._calls.add_trace))
                self._contexts = contexts.pop_all()
        return Bracketed(self._calls)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._contexts.__exit__(kind, error, traceback)
        if error is not None:
            return
        if self._session is None:
            skip_disabled()
        synchronise()  # what still runs would be missing from the trace
        traces = read_sessions(self._session.stop())
        try:
            held = jax_objects(traces)
            _finish(self._profiles, traces, held, self._name, self._calls, self._wanted)
        except TraceError:
            raise CaptureError(
                "no step found in this trace: bracket each in `with t.step():`,"
                " t being what tf_profile.trace() gives"
            ) from None


@contextmanager
def profiled_body(profiles: Profiles) -> Iterator[None]:
    """
    Profile each outermost Keras loop in the context, else all of it as one trace; raises
    CaptureError if there is no step in it, or it cannot be known which calls are the steps.
    """
    looped = False
    session = profiles.start_session()

    def profiled(call: KerasCall) -> Any:
        nonlocal looped
        looped = True
        session.discard()
        watch.close()  # the loop has one of its own
        before = sum(name.split()[0] == call.method for name in profiles.test.names)
        name = profiles.take_name(f"{call.method} {before + 1}" if before else call.method)
        return profile_keras_loop(profiles, call, name, profiles.test.wanted, stop=False).result

    try:
        with (
            loops_replaced(profiled),
            calls_recorded(lambda: not looped) as calls,
            ExitStack() as watch,
        ):
            watch.enter_context(traces_reported(calls.add_trace))
            yield
    except BaseException:
        session.discard()
        raise
    if not looped:
        synchronise()
        _one_trace(profiles, read_sessions(session.stop()), calls)


def _why_no_step(late: Sequence[str]) -> str:
    """Return why a test has no step; `late` frameworks started in it, and were not traced."""
    if late:
        return (
            f"no step found in this test: {' and '.join(late)} started in it, after the profiler. "
            "Start it before, as with jax.devices() at the top of the module, or use the fixture: "
            f"{_BY_FIXTURE}"
        )
    others = " and ".join(other_frameworks())
    return (
        "no step found in this test: it ran no Keras fit, evaluate or predict, called no "
        "tf.function or jax.jit function, and marked no step. "
        + (
            f"{others} is loaded, and tfperf measures TensorFlow and JAX only"
            if others
            else f"Use the fixture: {_BY_FIXTURE}"
        )
    )


def _one_trace(profiles: Profiles, traces: ReadTraces, calls: Calls) -> None:
    """Profile the whole body; its steps are those it marks, or the calls of its one function."""
    name = profiles.take_name(None)
    try:
        held = jax_objects(traces)
        found = _found_steps(traces, held)
        if found and found[1].source == "function":
            calls.each_is_step()
        else:
            calls.why = (
                "which functions a step calls is known of steps that tf_profile drives or brackets"
            )
        _finish(profiles, traces, held, name, calls, profiles.test.wanted)
    except TraceError as error:
        raise CaptureError(_why_no_step(started_later(traces))) from error
    if found and found[1].source == "function" and (several := _several(*found)):
        raise CaptureError(
            f"this test calls several functions ({several}): which of them is the step cannot be "
            f"known. Use the fixture: {_BY_FIXTURE}"
        )


def _finish(
    profiles: Profiles,
    traces: ReadTraces,
    held: JaxObjects,
    name: str,
    calls: Calls,
    wanted: Wanted,
) -> None:
    """Make the profile of traces without windows; raises TraceError if there is no step in them."""
    if not traces:
        raise CaptureError(_NO_TRACE.format(" and ".join(untraced_names())))
    first, *beside = *frameworks_of(traces, own=held.own_functions), *started_later(traces)
    held = held if first == JAX else JaxObjects()
    inspection = StepInspection(
        calls,
        Probe(why=_BARE),
        {},
        profiles.plan.max_seconds,
        asks_for_ablation(wanted),
        programs=held.programs,
    )
    recording = Recording(
        name=name,
        trace=Path(traces[first].path),
        workload={},
        bare=True,
        framework=first,
        beside=tuple(beside),
        traced=tuple(calls.traced),
        own_functions=held.own_functions,
    )
    profiles.store(recording, inspection, wanted, traces)


def _found_steps(traces: ReadTraces, held: JaxObjects) -> tuple[Trace, Steps] | None:
    """Return the trace of the framework that ran the steps, with them; None without a trace."""
    if not traces:
        return None
    own = held.own_functions
    trace = traces[frameworks_of(traces, own=own)[0]]
    return trace, find_steps(trace, only_own(own))


def _several(trace: Trace, steps: Steps) -> str:
    """Return the functions that may be the step; empty if there is only one."""
    step = steps.names[0].rpartition(" ")[0]
    if steps.n_dropped > 1:
        return and_more(sorted((step, *steps.others)), _NAMED)
    if framework(trace) != JAX:
        return ""
    if alternate(trace, steps):
        return f"{step} and its derivative"
    if users_traced().get(step, 0) > 1 or runs_unlike_programs(trace, steps):
        return f"more than one is named {step}"
    return ""
