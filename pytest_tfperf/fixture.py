"""The object behind the fixture `tf_profile`: each form of profiling a step, from the user's call to a `Profile`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pytest_tfperf.analysis.profile import profile_of, settling_steps
from pytest_tfperf.analysis.steps import find_steps
from pytest_tfperf.capture.environment import load_tensorflow, warm_runtime
from pytest_tfperf.capture.keras import KINDS, examples_per_step, keras_workload, loops_replaced, run_keras, run_one_batch
from pytest_tfperf.capture.loop import Bracketed, check_step, each_step, run_calls, run_once
from pytest_tfperf.capture.plan import Plan
from pytest_tfperf.capture.profiler import Session, keep_trace, read_session, stop_quietly, user_session_runs
from pytest_tfperf.capture.restore import restored
from pytest_tfperf.capture.windows import Windows
from pytest_tfperf.checks import Limit, Wanted
from pytest_tfperf.compiler.grappler import grappler_options
from pytest_tfperf.compiler.lowering import UNASKED_NODES, Calls, calls_recorded, lower
from pytest_tfperf.compiler.retracing import traces_reported_to
from pytest_tfperf.errors import CaptureError, TraceError
from pytest_tfperf.recording import Recording
from pytest_tfperf.results import Profile

_FROM_HLO = ("flops", "half_precision", "flops_utilization")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the profiles of one test are made; `keep` is the folder that traces are kept under, if they are."""

    wanted: Wanted
    plan: Plan
    keep: Path | None = None
    disabled: bool = False
    announce: Callable[[str], None] = lambda _: None


class TfProfile:
    """
    Profiles steps of TensorFlow code.

    Call it with a step and data, loop over `steps(data)`, run a Keras loop by `fit`, `evaluate` or `predict`, or bracket
    steps yourself under `trace()`. What was measured is in `profile` (the last) and `profiles` (by name). `grappler(...)` sets
    Grappler's options for the length of a context.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._results: dict[str, tuple[Profile, tuple[Limit, ...]]] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="tfperf-"))
        self._open: list[Windows] = []
        self._names: set[str] = set()
        self._tracing = False
        load_tensorflow()
        self._user_session = user_session_runs()

    grappler = staticmethod(grappler_options)

    @property
    def profile(self) -> Profile:
        """
        The last profile.

        Raises:
            CaptureError: If nothing has been profiled yet.
        """
        if not self._results:
            raise CaptureError("nothing has been profiled yet; a loop over tf_profile.steps(data) must have ended by itself")
        return list(self._results.values())[-1][0]

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """All profiles of this test by name; the first may have none, and then is at ""."""
        return {name: profile for name, (profile, _) in self._results.items()}

    def __call__(
        self,
        step: Callable[..., Any],
        data: Iterable[Any] | None = None,
        *,
        name: str | None = None,
        unpack: bool | str = "auto",
        steps_per_call: int = 1,
        examples_per_step: int | None = None,
        latency: bool | None = None,
        limits: Mapping[str, Any] | None = None,
        restore: Any = None,
        warmup: int | None = None,
        steps: int | None = None,
        trace_steps: int | None = None,
    ) -> Profile:
        """
        Run a step until its windows are full, and give what was measured.

        Args:
            step: One step, or `steps_per_call` of them that loop inside; called with an element of `data`, or with nothing.
            data: A `tf.data.Dataset` or any iterable; begins anew where it ends too soon.
            name: Of this profile; needed from the second of a test on.
            unpack: "auto" reads the step's signature: one required positional parameter takes the element whole, as many
                as the tuple has take it unpacked.
            examples_per_step: For throughput; else the batch size where all inputs agree on it.
            latency: Synchronise and fetch after every call, as inference does.
            limits: Marker arguments that hold for this profile alone, before the marker's.
            restore: Keras models, optimizers or variables whose state is put back afterwards.
            warmup, steps, trace_steps: Calls in the windows.

        Raises:
            TypeError: If the step cannot be called with the elements.
            CaptureError: If it cannot be profiled; what the step raises arrives unchanged.
        """
        check_step(step)
        wanted = self._wanted(limits, warmup=warmup, steps=steps, trace_steps=trace_steps, latency=latency)
        if self._settings.disabled:
            run_once(step, data, unpack)
            _skip()
        taken = self._take_name(name)
        with ExitStack() as stack:
            stack.enter_context(restored(restore))
            windows = stack.enter_context(self._windows(wanted, "step", steps_per_call))
            output = run_calls(windows, step, data, unpack)
        return self._finish(windows, taken, wanted, output, _inputs(windows, steps_per_call), examples_per_step)

    def steps(
        self, data: Iterable[Any], *, name: str | None = None, examples_per_step: int | None = None, steps_per_call: int = 1,
        limits: Mapping[str, Any] | None = None, restore: Any = None, latency: bool | None = None, warmup: int | None = None,
        steps: int | None = None, trace_steps: int | None = None,
    ) -> Iterator[Any]:  # fmt: skip
        """The elements of `data` for a loop of your own, each turn of it a step; it ends by itself, then see `profile`."""
        wanted = self._wanted(limits, warmup=warmup, steps=steps, trace_steps=trace_steps, latency=latency)
        return self._steps(data, name, wanted, steps_per_call, examples_per_step, restore)

    def _steps(
        self, data: Iterable[Any], name: str | None, wanted: Wanted, steps_per_call: int, examples: int | None, restore: Any
    ) -> Iterator[Any]:
        if self._settings.disabled:
            yield next(iter(data))
            _skip()
        taken = self._take_name(name)
        with ExitStack() as stack:
            stack.enter_context(restored(restore))
            windows = stack.enter_context(self._windows(wanted, "step", steps_per_call))
            try:
                yield from each_step(windows, data)
            except GeneratorExit:
                windows.close(f"the loop over tf_profile.steps was left after {windows.n_steps} steps, before all windows were full")
                self._finish(windows, taken, wanted, None, _inputs(windows, steps_per_call), examples)
                raise
        self._finish(windows, taken, wanted, None, _inputs(windows, steps_per_call), examples)

    def fit(self, model: Any, *args: Any, **kwargs: Any) -> Profile:
        """`model.fit(*args, **kwargs)` with windows in it; also takes name, limits, restore, warmup and trace_steps."""
        return self._keras(model, "fit", args, kwargs)

    def evaluate(self, model: Any, *args: Any, **kwargs: Any) -> Profile:
        """`model.evaluate(*args, **kwargs)`, as `fit`."""
        return self._keras(model, "evaluate", args, kwargs)

    def predict(self, model: Any, *args: Any, **kwargs: Any) -> Profile:
        """`model.predict(*args, **kwargs)`, as `fit`."""
        return self._keras(model, "predict", args, kwargs)

    @contextmanager
    def trace(self, name: str | None = None, *, limits: Mapping[str, Any] | None = None) -> Iterator[Bracketed]:
        """Trace what is in the context; bracket each step in `with t.step():`. Gives counts and shares, no times."""
        wanted = self._wanted(limits)
        taken = self._take_name(name)
        if self._settings.disabled:
            yield Bracketed(Calls())
            _skip()
        session = Session(self._folder)
        self._tracing = True
        try:
            with calls_recorded() as calls:
                yield Bracketed(calls)
        except BaseException:
            session.discard()
            raise
        finally:
            self._tracing = False
        try:
            self._store(self._bare(taken, session.stop(), calls, wanted), wanted)
        except TraceError as error:
            raise CaptureError(
                "no step found in this trace: bracket each in `with t.step():`, t being what tf_profile.trace() gives"
            ) from error

    @contextmanager
    def whole_body(self) -> Iterator[None]:
        """
        Profile a test that has the marker and not the fixture: each outermost Keras loop in it, else all of it as one trace.
        """
        looped = False
        session: Session | None = None if self._settings.disabled else Session(self._folder)
        calls = Calls()

        def profiled(call: Callable[..., Any], model: Any, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            nonlocal looped
            looped = True
            if session is not None:
                session.discard()
            if self._settings.disabled:
                return call(*args, **kwargs)
            name = method if method not in self._names else f"{method} {sum(n.split()[0] == method for n in self._names) + 1}"
            return self._run_keras(call, model, method, args, kwargs, self._take_name(name), self._settings.wanted, stop=False).result

        try:
            with loops_replaced(profiled), calls_recorded(lambda: not looped) as calls:
                yield
        except BaseException:
            if session is not None:
                session.discard()
            raise
        if self._settings.disabled:
            _skip()
        if not looped and session is not None:
            self._finish_bare(session, calls)

    def _bare(self, name: str, trace: Path, calls: Calls, wanted: Wanted) -> Recording:
        done = lower(calls, {}, self._settings.plan.max_seconds, None if wanted.asks_for(_FROM_HLO) else UNASKED_NODES)
        return Recording(name=name, trace=trace, workload={}, bare=True, lowered=done.modules, lowered_why=done.why, notes=done.notes)

    def _finish_bare(self, session: Session, calls: Calls) -> None:
        name, trace = self._take_name(None), session.stop()
        try:
            if find_steps(read_session(trace)).source == "function":
                calls.each_is_step()
            else:
                calls.why = "which functions a step calls is known of steps that tf_profile drives or brackets"
            profile = self._store(self._bare(name, trace, calls, self._settings.wanted), self._settings.wanted)
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

    def results(self) -> list[tuple[Profile, tuple[Limit, ...]]]:
        """Every profile, with the limits that hold for it."""
        return list(self._results.values())

    def close(self) -> None:
        """Stop whatever still runs and remove what is not kept."""
        for windows in self._open:
            windows.close()
        if not self._user_session and user_session_runs():
            stop_quietly()  # the test left a session of its own running
        shutil.rmtree(self._folder, ignore_errors=True)

    def _keras(self, model: Any, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Profile:
        own = {key: kwargs.pop(key, None) for key in ("name", "limits", "restore", "warmup", "trace_steps")}
        wanted = self._wanted(own["limits"], warmup=own["warmup"], trace_steps=own["trace_steps"])
        call = getattr(model, method, None)
        if call is None:
            raise TypeError(
                f"tf_profile.{method} takes a Keras model and then the arguments of its {method}, but got {type(model).__name__}"
            )
        if self._settings.disabled:
            run_one_batch(call, model, method, args, kwargs)
            _skip()
        taken = self._take_name(own["name"])
        with restored(own["restore"]):
            return self._run_keras(call, model, method, args, kwargs, taken, wanted, stop=True)

    def _run_keras(
        self, call: Any, model: Any, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, wanted: Wanted, stop: bool
    ) -> Profile:
        workload = keras_workload(call, model, args, kwargs)
        with ExitStack() as stack:

            def open_windows(available: int | None, per_execution: int) -> Windows:
                plan = replace(self._plan(wanted), steps_per_call=per_execution)
                if available is not None:
                    plan = plan.cut_to(available)
                return stack.enter_context(self._windows_of(plan, KINDS[method]))

            result, windows = run_keras(call, model, method, args, kwargs, open_windows, stop)
        return self._finish(windows, name, wanted, result, workload, examples_per_step(args, kwargs, workload))

    def _wanted(self, limits: Mapping[str, Any] | None, **options: Any) -> Wanted:
        given = {key: value for key, value in options.items() if value is not None}
        return Wanted.read({**self._settings.wanted.given, **(limits or {}), **given})

    def _plan(self, wanted: Wanted) -> Plan:
        chosen = {name: getattr(wanted, name) for name in ("warmup", "steps", "trace_steps", "latency")}
        return replace(self._settings.plan, **{name: value for name, value in chosen.items() if value is not None})

    def _windows(self, wanted: Wanted, kind: str, steps_per_call: int) -> Any:
        return self._windows_of(replace(self._plan(wanted), steps_per_call=steps_per_call), kind)

    @contextmanager
    def _windows_of(self, plan: Plan, kind: str) -> Iterator[Windows]:
        warm_runtime()
        windows = Windows(
            plan, self._folder, kind, lambda path, before: settling_steps(read_session(path), before), self._settings.announce
        )
        self._open.append(windows)
        try:
            with traces_reported_to(windows.function_traced) as watched:
                windows.watched = watched
                yield windows
        finally:
            windows.close()
            self._open.remove(windows)

    def _take_name(self, name: str | None) -> str:
        if self._open or self._tracing:
            raise CaptureError("a profile of this test is being made already; profiles cannot be nested, since there is one profiler")
        if name is None and self._names:
            raise CaptureError("this test has profiled a step before; give the second one a name=")
        if (name or "") in self._names:
            raise CaptureError(f"this test has a profile named {name!r} already; names are {sorted(self._names)}")
        self._names.add(name or "")
        return name or ""

    def _finish(
        self, windows: Windows, name: str, wanted: Wanted, result: Any, workload: Mapping[str, Any], examples: float | None
    ) -> Profile:
        recording = windows.recording(name, result, workload, None if wanted.asks_for(_FROM_HLO) else UNASKED_NODES)
        if examples is None:
            examples = workload.get("batch")
        return self._store(replace(recording, examples_per_step=examples), wanted)

    def _store(self, recording: Recording, wanted: Wanted) -> Profile:
        trace = read_session(recording.trace) if recording.trace else None
        profile = profile_of(replace(recording, target_step_time_s=wanted.target_step_time), trace)
        self._results[recording.name] = profile, wanted.limits
        if trace is not None and self._settings.keep is not None:
            keep_trace(Path(trace.path), self._settings.keep, recording.name)
        return profile


def _skip() -> NoReturn:
    pytest.skip("tfperf is disabled (--tfperf-disable): the step ran once and was not profiled")


def _inputs(windows: Windows, steps_per_call: int) -> Mapping[str, Any]:
    return {**windows.inputs, "steps_per_call": steps_per_call}
