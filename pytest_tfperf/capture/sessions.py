"""Sessions of the frameworks' profilers, their XSpace files, and the marks of steps in them."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from pytest_tfperf.errors import CaptureError, TraceError
from pytest_tfperf.files import on_disk
from pytest_tfperf.frameworks.framework import JAX, TENSORFLOW, Annotation, Framework
from pytest_tfperf.frameworks.in_use import loaded, traced
from pytest_tfperf.machine.thread_times import ThreadClock
from pytest_tfperf.machine.wall_clock import WallClock
from pytest_tfperf.quantities import SECONDS, format_quantity
from pytest_tfperf.temporary import TemporaryFolder
from pytest_tfperf.trace.logdir import name_run
from pytest_tfperf.trace.xspace import Trace, read_trace
from pytest_tfperf.values import FETCH, FETCH_PYTHON, STOOD_NS

__tracebackhide__ = True

_STARTED_BY = {
    TENSORFLOW: "tf.profiler.experimental.start, or a TensorBoard callback with profile_batch",
    JAX: "jax.profiler.start_trace, or jax.profiler.trace",
}


Traces = Mapping[str, Path]
"""The `.xplane.pb` of a session, by the name of the framework that wrote it."""
ReadTraces = Mapping[str, Trace]
"""The traces of a session, by the name of the framework."""


class Session:
    """
    A running profiler session of every framework in use.

    Each has its own folder, since two sessions of one second overwrite each other.

    Raises:
        CaptureError: If another profiler is running in the process.
    """

    def __init__(self, parent: Path) -> None:
        check_no_session()
        self._started: dict[Framework, Path] = {}
        for framework in traced():
            self._start(framework, Path(tempfile.mkdtemp(dir=parent)))
        self.running = True
        self._clock = WallClock()

    def stop(self) -> Traces:
        """
        End the session and return its traces.

        Raises:
            CaptureError: If a profiler wrote none, or the clock of its events was set.
        """
        self.running = False
        jump_s = self._clock.jump()
        traces = {}
        for framework, folder in self._started.items():
            try:
                framework.stop_trace()
            except Exception as error:
                for other in self._started:
                    other.discard_trace()
                raise CaptureError(
                    f"{framework.name}'s profiler could not write its trace: {error}"
                ) from error
            found = sorted(folder.glob("plugins/profile/*/*.xplane.pb"))
            if not found:
                raise CaptureError(
                    f"{framework.name}'s profiler wrote no .xplane.pb under {folder}"
                )
            traces[framework.name] = found[0]
        if jump_s:
            raise CaptureError(
                f"the clock of this machine was set {_said(jump_s)} while steps were traced, and "
                f"the profiler of {' and '.join(traces)} dates its events by it: run again"
            )
        return traces

    def discard(self) -> None:
        """End the session, if it runs, without a trace."""
        if self.running:
            self.running = False
            for framework in self._started:
                framework.discard_trace()

    def _start(self, framework: Framework, folder: Path) -> None:
        try:
            framework.start_trace(folder)
        except Exception as error:
            for started in (*self._started, framework):
                started.discard_trace()  # a failed start blocks later ones until a stop
            if isinstance(error, CaptureError):
                raise
            raise CaptureError(
                f"{framework.name}'s profiler cannot start: {error}; is another profiler running?"
            ) from error
        self._started[framework] = folder


def read_session(path: Path) -> Trace:
    """
    Read the trace of a session.

    Raises:
        TraceError: If it is damaged, also if it ends between two planes: the host's name is
            written last.
    """
    trace = read_trace(path)
    if not trace.hostnames:
        raise TraceError(
            f"trace {path}: it ends without the host's name, so it is truncated; is the disk full?"
        )
    return trace


def read_sessions(traces: Traces) -> ReadTraces:
    """Read the traces of a session. Raises: as `read_session`."""
    return {name: read_session(path) for name, path in traces.items()}


def started_later(traces: Collection[str]) -> tuple[str, ...]:
    """Return the frameworks whose first device started in a session, which did not trace them."""
    return tuple(framework.name for framework in traced() if framework.name not in traces)


def user_session_runs() -> bool:
    """Return whether the user runs a profiler of a loaded framework in this process."""
    return any(framework.is_tracing() for framework in loaded())


def check_no_session() -> None:
    """
    Refuse to run beside a session of the user.

    Raises:
        CaptureError: If one runs in this process.
    """
    for framework in traced():
        if framework.is_tracing():
            raise CaptureError(
                f"a {framework.name} profiler session is already running in this process"
                f" ({_STARTED_BY[framework.name]}); stop it before the step is profiled"
            )


def stop_quietly() -> None:
    """Stop the sessions of the process, if there are any, and discard their traces."""
    for framework in loaded():
        framework.discard_trace()


def keep_trace(trace: Path, folder: Path, name: str) -> Path:
    """
    Copy a trace to where XProf and TensorBoard find it.

    Args:
        trace: The trace.
        folder: Folder for `[<name>/]plugins/profile/<run>/<host>.xplane.pb`.
        name: Name of the profile.

    Returns:
        Path of the copy.

    Raises:
        CaptureError: If it cannot be copied; then no part of the copy is left.
    """
    runs = folder / re.sub(r"[^\w-]+", "_", name)[:100] / "plugins" / "profile"
    try:
        runs.mkdir(parents=True, exist_ok=True)
        with TemporaryFolder(runs) as temporary:
            run = temporary / "run"  # renamed whole: XProf would look for hosts in an empty one
            run.mkdir()
            with trace.open("rb") as source, on_disk(run / trace.name) as file:
                shutil.copyfileobj(source, file)
            return name_run(run, runs) / trace.name
    except OSError as error:
        raise CaptureError(
            f"the trace cannot be kept in {runs}: {error.strerror}; see --tfperf-trace-dir"
        ) from error


class StepMark:
    """
    The event of one step in all frameworks, from its creation to `end`.

    Args:
        kind: Kind of the loop (step, train, test, predict).
        n_step: Index of the step.
        more: Index of its epoch (`epoch`) and number of its batches (`batches`), if known.
    """

    def __init__(self, kind: str, n_step: int, **more: int) -> None:
        metadata = {"step_num": n_step, "_r": 1, "tfperf": 1, **more}
        self._events = [framework.annotation(kind, metadata) for framework in traced()]
        for event in self._events:
            event.__enter__()

    def abort(self) -> None:
        """Mark the event as not a step."""
        for event in self._events:
            event.set_metadata(aborted=1)

    def end(self) -> None:
        """End the event."""
        for event in reversed(self._events):
            event.__exit__(None, None, None)


class Fetching:
    """
    The context of a step's `next()`; the trace of a session marks it as the input pipeline's time.

    It calls no library, whose functions would count as those of the step.

    Args:
        fetched: Receives the seconds of each `next()` that gave an element, and those of them in
            which the thread stood still.
    """

    def __init__(self, fetched: Callable[[float, float], None]) -> None:
        self.runs = False
        self._fetched, self._clock = fetched, ThreadClock()
        self._from_python = False
        self._events: list[Annotation] = []

    def of(self, from_python: bool, in_trace: bool) -> Fetching:
        """Return the context for a `next()`, which an event marks in a trace."""
        self._from_python = from_python
        if in_trace:
            self._events = [
                framework.annotation(
                    FETCH if framework.marks_fetches and not from_python else FETCH_PYTHON, {}
                )
                for framework in traced()
            ]
        return self

    def __enter__(self) -> None:
        self.runs = True
        for event in self._events:
            event.__enter__()
        self._clock.start(self._from_python)

    def __exit__(self, error: object, *_: object) -> None:
        seconds, stood_s = self._clock.stop()
        events, self._events = self._events, []
        for event in reversed(events):
            event.set_metadata(**{STOOD_NS: round(1e9 * stood_s)})
            event.__exit__(None, None, None)
        if error is None:
            self._fetched(seconds, stood_s)
        self.runs = False


def _said(jump_s: float) -> str:
    shown = format_quantity(abs(jump_s), SECONDS)
    return f"forward by {shown}" if jump_s > 0 else f"back by {shown}"
