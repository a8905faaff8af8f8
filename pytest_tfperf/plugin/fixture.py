"""The object behind the fixture `tf_profile`: every form of profiling a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

from pytest_tfperf.capture.keras_data import KerasCall
from pytest_tfperf.capture.keras_loop import run_one_batch
from pytest_tfperf.capture.loop import check_step, run_calls, run_once
from pytest_tfperf.capture.sessions import check_no_session
from pytest_tfperf.capture.state import restored
from pytest_tfperf.checks.arguments import Wanted
from pytest_tfperf.compiler.grappler import grappler_options
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.metric_evidence import TRACED_TIMES
from pytest_tfperf.metrics.multi_host import analyse_job
from pytest_tfperf.metrics.timing import TRACED_NOTE
from pytest_tfperf.plugin.compare import (
    compare_backends,
    compare_in_this_process,
    compare_with_data,
)
from pytest_tfperf.plugin.export import OPTIMIZED, export_profile
from pytest_tfperf.plugin.loops import (
    BracketedTrace,
    profile_keras_loop,
    profiled_body,
    profiled_elements,
)
from pytest_tfperf.plugin.profiled_item import ProfiledItem
from pytest_tfperf.plugin.profiles import Profiles, skip_disabled
from pytest_tfperf.plugin.remedies import tried, try_if_asked
from pytest_tfperf.remedies.keras import can_be_tried
from pytest_tfperf.remedies.remedy import Call
from pytest_tfperf.remedies.results import Remedies
from pytest_tfperf.remote.job import CapturePlan, capture_job
from pytest_tfperf.remote.profiler_service import (
    TraceOptions,
    Worker,
    check_duration,
    read_workers,
)
from pytest_tfperf.results import Profile
from pytest_tfperf.turns.workers import WorkersCall, summarised, who
from pytest_tfperf.variants.comparison import Comparison
from pytest_tfperf.variants.outputs import Tolerance
from pytest_tfperf.variants.steps import data_of, profile_names, variants_of

__tracebackhide__ = True

_OF_KERAS_FORMS = ("name", "limits", "restore", "warmup", "trace_steps", "examples_per_step")
_LEAST_WORKERS = 2


class TfProfile:
    """
    Profiler of steps of TensorFlow code; the fixture `tf_profile` is one.

    Call it with a step and data, loop over `steps(data)`, run a Keras loop by `fit`, `evaluate` or
    `predict`, or bracket steps under `trace()`.
    """

    def __init__(self, test: ProfiledItem) -> None:
        self._profiles = Profiles(test)
        self._test, self._disabled = test, test.options.disable

    grappler = staticmethod(grappler_options)

    @property
    def profile(self) -> Profile:
        """
        The last profile.

        Raises:
            CaptureError: If nothing has been profiled yet.
        """
        if not self._test.results:
            raise CaptureError(
                "nothing has been profiled yet; "
                "a loop over tf_profile.steps(data) must have ended by itself"
            )
        return list(self._test.results.values())[-1][0]

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """All profiles of this test by name; those without one have "", "2", "3" and so on."""
        return {name: profile for name, (profile, _) in self._test.results.items()}

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
        Run a step until its windows are full, and return its profile.

        Args:
            step: One step, called with an element of `data`, or without arguments.
            data: A `tf.data.Dataset`, or an iterable that can start again and does at its end.
            name: Name of the profile; those of a test without one are "", "2", "3" and so on.
            unpack: "auto" reads the step's signature: one required positional parameter takes the
                whole element, several take a tuple unpacked. True or False decides it.
            steps_per_call: Steps that loop inside a call.
            examples_per_step: Examples of a step; by default the batch size that inputs share.
            latency: True to synchronise and fetch after every call, as inference does.
            limits: Marker arguments for this profile, which override the marker's.
            restore: Keras models, optimizers or variables whose state is put back afterwards.
            warmup: Warm-up steps.
            steps: Timed steps.
            trace_steps: Traced steps.

        Raises:
            TypeError: If the step cannot be called with the elements.
            CaptureError: If the step cannot be profiled. An error in the step arrives unchanged.
        """
        check_step(step)
        wanted = self._profiles.wanted(
            limits, warmup=warmup, steps=steps, trace_steps=trace_steps, latency=latency
        )
        if self._disabled:
            run_once(step, data, unpack)
            skip_disabled()
        taken = self._profiles.take_name(name)
        call = Call(step=step, data=data, unpack=unpack, restore=restore)
        if steps_per_call == 1:
            try_if_asked(self._test, taken, call)
        with ExitStack() as stack:
            stack.enter_context(restored(restore))
            windows = stack.enter_context(
                self._profiles.windows(taken, wanted, "step", steps_per_call)
            )
            output = run_calls(windows, step, data, unpack)
        workload = {**windows.inputs, "steps_per_call": steps_per_call}
        profile = self._profiles.finish(windows, taken, wanted, output, workload, examples_per_step)
        if steps_per_call == 1:
            self._test.calls[taken] = call
        return profile

    def try_remedies(
        self,
        step: Callable[..., Any],
        data: Iterable[Any] | None = None,
        *,
        name: str | None = None,
        unpack: bool | str = "auto",
        limits: Mapping[str, Any] | None = None,
        restore: Any = None,
        seconds: float | None = None,
    ) -> Remedies:
        """
        Try the remedies that the profile of a step suggests, and measure what each gives.

        Each changes the same step or data, and takes turns with the unchanged step. A step that
        this test has profiled with the same data is not profiled again. State that the step
        reaches is put back after each remedy, and at the end.

        Args:
            step: One step, as for `tf_profile(step, data)`.
            data: A `tf.data.Dataset`, or an iterable that can start again.
            name: Name of the profile; those of a test without one are "", "2", "3" and so on.
            unpack: How the step takes an element of the data.
            limits: Marker arguments for the profile, which override the marker's.
            restore: Keras models, optimizers or variables whose state is put back too.
            seconds: Time for all remedies; by default `tfperf_try_seconds`, 60.

        Raises:
            CaptureError: If the step cannot be profiled, or the data cannot begin again.
        """
        made = [key for key, call in self._test.calls.items() if call.is_of(step, data)]
        if not made:
            self(step, data, name=name, unpack=unpack, limits=limits, restore=restore)
            made = list(self._test.results)
        own_seconds = self._test.options.try_seconds if seconds is None else seconds
        return tried(self._test, made[-1], own_seconds)

    def steps(
        self,
        data: Iterable[Any],
        *,
        name: str | None = None,
        examples_per_step: int | None = None,
        steps_per_call: int = 1,
        limits: Mapping[str, Any] | None = None,
        restore: Any = None,
        latency: bool | None = None,
        warmup: int | None = None,
        steps: int | None = None,
        trace_steps: int | None = None,
    ) -> Iterator[Any]:
        """
        Yield the elements of `data` to a loop of your own; each iteration is a step.

        The loop ends by itself when the windows are full; `profile` is known then.

        Args:
            data: A `tf.data.Dataset`, or an iterable that can start again.
            name: Name of the profile; those of a test without one are "", "2", "3" and so on.
            examples_per_step: Examples of a step; by default the batch size.
            steps_per_call: Steps that loop inside an iteration.
            limits: Marker arguments for this profile, which override the marker's.
            restore: Keras models, optimizers or variables whose state is put back afterwards.
            latency: True to synchronise after every step.
            warmup: Warm-up steps.
            steps: Timed steps.
            trace_steps: Traced steps.
        """
        wanted = self._profiles.wanted(
            limits, warmup=warmup, steps=steps, trace_steps=trace_steps, latency=latency
        )
        return profiled_elements(
            self._profiles, data, name, wanted, steps_per_call, examples_per_step, restore
        )

    def compare(
        self,
        steps: Mapping[str, Callable[..., Any]],
        data: Any = None,
        *,
        name: str | None = None,
        unpack: bool | str = "auto",
        check_outputs: bool | None = None,
        rtol: float | None = None,
        atol: float | None = None,
        limits: Mapping[str, Any] | None = None,
        restore: Any = None,
        warmup: int | None = None,
        trace_steps: int | None = None,
    ) -> Comparison:
        """
        Profile variants of a step, and measure how many times as fast each is as the others.

        Args:
            steps: The variants by name; the others are compared with the first.
            data: Data by variant, or for all. With data each variant runs in a process of its own.
            name: Name of the comparison, put before the names of its profiles.
            unpack: How steps take the elements of data, as in `tf_profile(step, data)`.
            check_outputs: Compare the outputs of the first steps; by default without data only.
            rtol, atol: Tolerances of the outputs; by default those of the narrower dtype.
            limits: Marker arguments for each profile.
            restore: Keras models, optimizers or variables whose state is put back afterwards.
            warmup, trace_steps: Warm-up and traced steps of each profile.

        Raises:
            AssertionError: If the outputs of the variants differ.
            CaptureError: If there are fewer than two, or one fails in its process.
            TypeError: If they are not steps by name.
        """
        options: dict[str, Any] = {"limits": limits, "warmup": warmup, "trace_steps": trace_steps}
        if data is not None:
            own_data = data_of(steps, data)
            if self._disabled:
                for key, one in own_data.items():
                    run_once(steps[key], one, unpack)
                skip_disabled()
            names = profile_names(steps, name)
            tolerance = Tolerance(rtol, atol) if check_outputs else None
            return compare_with_data(
                self._profiles, self, steps, own_data, names, tolerance, unpack, restore, options
            )
        variants = variants_of(steps)
        tolerance = None if check_outputs is False else Tolerance(rtol, atol)
        if self._disabled:
            for variant in variants:
                variant.step()
            skip_disabled()
        names = profile_names(steps, name)
        with restored(restore):
            return compare_in_this_process(
                self._profiles, self, variants, names, tolerance, options
            )

    def compare_backends(
        self,
        build: Callable[[], Any],
        data: Any,
        *,
        backends: Sequence[str] | None = None,
        batch_size: int = 32,
        name: str | None = None,
        limits: Mapping[str, Any] | None = None,
        warmup: int | None = None,
        trace_steps: int | None = None,
    ) -> Comparison:
        """
        Profile `fit` of one Keras model under several backends, each in a process of its own.

        The processes take turns. A variant named after the backend and `bare` is the same training
        step in the backend's own words, so that the table tells what Keras' loop adds.

        Args:
            build: Returns a compiled model; called in each process.
            data: Arrays `(x, y)`, or what `fit` takes as `x`.
            backends: "tensorflow", "jax", "torch"; by default those that are installed. One
                alone is compared with its bare step.
            batch_size: Examples of a batch of arrays.
            name: Name of the comparison, put before the names of its profiles.
            limits: Marker arguments for each profile.
            warmup, trace_steps: Warm-up and traced steps of each profile.

        Raises:
            CaptureError: If a backend is not installed, or fails in its process.
        """
        options: dict[str, Any] = {"limits": limits, "warmup": warmup, "trace_steps": trace_steps}
        if self._disabled:
            skip_disabled()
        return compare_backends(
            self._profiles, self, build, data, batch_size, backends, name, options
        )

    @overload
    def fit(
        self, model: Any, *args: Any, try_remedies: Literal[False] = ..., **kwargs: Any
    ) -> Profile: ...

    @overload
    def fit(
        self, model: Any, *args: Any, try_remedies: Literal[True], **kwargs: Any
    ) -> Remedies: ...

    def fit(
        self, model: Any, *args: Any, try_remedies: bool = False, **kwargs: Any
    ) -> Profile | Remedies:
        """
        Run `model.fit` until its windows are full, and return the profile of a batch.

        Args:
            model: A compiled Keras model.
            args: Positional arguments of `model.fit`.
            try_remedies: True to try the remedies that the profile suggests, as `try_remedies`
                does, and to return what they gave; `profile` has the profile then.
            kwargs: Its keyword arguments, and `name`, `limits`, `restore`, `warmup`, `trace_steps`
                and `examples_per_step` of the profile.

        Raises:
            CaptureError: If remedies of this model or these data cannot be tried.
        """
        return self._keras(model, "fit", args, kwargs, try_remedies)

    @overload
    def evaluate(
        self, model: Any, *args: Any, try_remedies: Literal[False] = ..., **kwargs: Any
    ) -> Profile: ...

    @overload
    def evaluate(
        self, model: Any, *args: Any, try_remedies: Literal[True], **kwargs: Any
    ) -> Remedies: ...

    def evaluate(
        self, model: Any, *args: Any, try_remedies: bool = False, **kwargs: Any
    ) -> Profile | Remedies:
        """Run `model.evaluate` as `fit` does, and return its profile, or its remedies."""
        return self._keras(model, "evaluate", args, kwargs, try_remedies)

    @overload
    def predict(
        self, model: Any, *args: Any, try_remedies: Literal[False] = ..., **kwargs: Any
    ) -> Profile: ...

    @overload
    def predict(
        self, model: Any, *args: Any, try_remedies: Literal[True], **kwargs: Any
    ) -> Remedies: ...

    def predict(
        self, model: Any, *args: Any, try_remedies: bool = False, **kwargs: Any
    ) -> Profile | Remedies:
        """Run `model.predict` as `fit` does, and return its profile, or its remedies."""
        return self._keras(model, "predict", args, kwargs, try_remedies)

    def trace(
        self, name: str | None = None, *, limits: Mapping[str, Any] | None = None
    ) -> BracketedTrace:
        """
        Trace the code in a context: `with tf_profile.trace() as t:`.

        Bracket each step in it by `with t.step():`. The profile has counts and shares, but no
        times. `name` and `limits` are those of `tf_profile(...)`.
        """
        wanted = self._profiles.wanted(limits)
        taken = self._profiles.take_name(name)
        if not self._disabled:
            check_no_session()
        return BracketedTrace(self._profiles, taken, wanted, self._disabled)

    @contextmanager
    def whole_body(self) -> Iterator[None]:
        """Profile a test that has the marker and not the fixture."""
        if not self._disabled:
            with profiled_body(self._profiles):
                yield
            return
        yield
        skip_disabled()

    def capture(
        self,
        workers: str,
        *,
        ms: int = 2000,
        name: str | None = None,
        limits: Mapping[str, Any] | None = None,
    ) -> Profile:
        """
        Trace running processes, and return the profile of the first.

        Tests of this machine that trace the same process wait for each other. The profile of each
        process is in `profiles`; of several, its address is added to the name. Limits on step_time
        and input_wait are decided by the traced steps.

        Args:
            workers: Profiler servers of one job: "grpc://HOST:PORT", with commas between them.
            ms: Duration in milliseconds.
            name: Name of the profile; those of a test without one are "", "2", "3" and so on.
            limits: Marker arguments for these profiles, which override the marker's.

        Raises:
            CaptureError: If a worker cannot be traced, or ran no step meanwhile.
        """
        wanted = self._profiles.wanted(limits)
        found = read_workers(workers)
        if self._disabled:
            skip_disabled()
        return _profile_job(self._profiles, found, check_duration(ms), name, wanted)

    def workers(
        self,
        n: int,
        function: Callable[[], Profile],
        *,
        name: str | None = None,
        limits: Mapping[str, Any] | None = None,
    ) -> tuple[Profile, ...]:
        """
        Run the workers of a MultiWorkerMirroredStrategy, and return the profile of each.

        Each worker is a process that runs this test again, up to this call, with the `TF_CONFIG` of
        a cluster of `n` workers on this machine. All run as many steps. `step_skew` tells how much
        the slowest is behind, and the table `workers` what each of them does.

        Args:
            n: Number of workers.
            function: Profiles a step in a worker: `lambda: tf_profile.fit(model, data)`. It makes
                the strategy and the model, and returns the profile.
            name: Name put before `worker 0` and so on, the names of the profiles.
            limits: Marker arguments for these profiles, which override the marker's.

        Raises:
            CaptureError: If a worker fails or ends, with its name and its output.
        """
        if n < _LEAST_WORKERS:
            raise CaptureError(f"{n} workers are too few: a cluster has 2 or more")
        if self._disabled:
            function()
            skip_disabled()
        # a worker is here too, on its way to the function, and decides nothing
        wanted = self._profiles.wanted(None if self._test.is_in_worker else limits)
        names = [f"{name or ''} {who(index)}".strip() for index in range(n)]
        for own_name in names:
            self._profiles.free_name(own_name)
        found = summarised(self._test.run_workers(WorkersCall(names=names, measure=function)))
        for own_name, profile in zip(names, found, strict=True):
            self._profiles.add(replace(profile, name=own_name), wanted)
        return tuple(self._test.results[own_name][0] for own_name in names)

    def export(self, path: str | Path, *, name: str | None = None, stage: str = OPTIMIZED) -> None:
        """
        Write the timeline of a profile, or the HLO of its step.

        Args:
            path: File to write. Timelines for ui.perfetto.dev or chrome://tracing end in .json or
                .json.gz, HLO in .txt, .dot or .svg (needs Graphviz).
            name: Name of the profile; by default the last.
            stage: Stage of the HLO: "unoptimized" (the input of XLA), "before_fusion" and
                "after_fusion" (compiled again, in another process) or "optimized" (as it ran).

        Raises:
            CaptureError: If there is no such profile or stage, or the step has no HLO at it.
            ExportError: If the file cannot be written, or Graphviz is missing.
        """
        recording, inspection = self._profiles.recording(name)
        self._profiles.add_file(
            recording.name, export_profile(recording, inspection, Path(path), stage), Path(path)
        )

    def close(self) -> None:
        """Stop whatever still runs and remove what is not kept."""
        self._profiles.close()

    def _keras(
        self,
        model: Any,
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        try_remedies: bool,
    ) -> Profile | Remedies:
        own = {key: kwargs.pop(key, None) for key in _OF_KERAS_FORMS}
        wanted = self._profiles.wanted(
            own["limits"], warmup=own["warmup"], trace_steps=own["trace_steps"]
        )
        call = KerasCall.of(model, method, args, kwargs, own["examples_per_step"])
        if self._disabled:
            run_one_batch(call)
            skip_disabled()
        taken = self._profiles.take_name(own["name"])
        tried_call = can_be_tried(call) and Call(
            step=call.bound, data=call.data(), restore=own["restore"], keras=call
        )
        if tried_call:
            try_if_asked(self._test, taken, tried_call)
        with restored(own["restore"]):
            profile = profile_keras_loop(self._profiles, call, taken, wanted, stop=True)
        if tried_call:
            self._test.calls[taken] = tried_call
        if try_remedies:
            return tried(self._test, taken, self._test.options.try_seconds)
        return profile


def _profile_job(
    profiles: Profiles,
    workers: Sequence[Worker],
    duration_ms: int,
    name: str | None,
    wanted: Wanted,
) -> Profile:
    """
    Trace a running job, make a profile of each worker, with its address in the name if there are
    several, and return the first; raises CaptureError if one cannot be traced, or ran no step.
    """
    several = len(workers) > 1
    wanted_names = [f"{name or ''} {w.address}".strip() if several else name for w in workers]
    names = [profiles.free_name(one) for one in wanted_names]
    plan = CapturePlan(options=TraceOptions(duration_ms=duration_ms), requires_all=True)
    job = capture_job(workers, plan, profiles.folder, profiles.test.announce)
    if job.errors:
        raise CaptureError("; ".join(map(str, job.errors)))
    analysed, errors = analyse_job(job.traces, wanted.target_step_time)
    if errors:
        raise CaptureError("; ".join(f"{error}; trace longer with ms=" for error in errors))
    timed = wanted.asks_for(TRACED_TIMES)
    for own_name, one, trace in zip(names, analysed, job.traces, strict=True):
        profile = replace(one.profile, name=own_name)
        if timed:
            profile = replace(
                one.with_traced_times(), name=profile.name, notes=(*profile.notes, TRACED_NOTE)
            )
        profiles.add_traced(profile, wanted, trace)
    return profiles.test.results[names[0]][0]
