"""Sessions of the frameworks' profilers: their files, the marks of steps, what they show of XLA."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from time import perf_counter

from pytest_tfperf.errors import CaptureError, TfperfError, TraceError
from pytest_tfperf.files import on_disk
from pytest_tfperf.frameworks.framework import JAX, TENSORFLOW, Annotation, Framework
from pytest_tfperf.frameworks.in_use import loaded, traced
from pytest_tfperf.machine.clocks import ThreadClock
from pytest_tfperf.quantities import SECONDS, format_quantity
from pytest_tfperf.recording import XlaShown
from pytest_tfperf.temporary import TemporaryFolder
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.hlo_modules import live_modules
from pytest_tfperf.trace.host_events import compilations, xla_runs
from pytest_tfperf.trace.logdir import name_run
from pytest_tfperf.trace.xspace import HOST, Trace, read_trace
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
# The kernel slews a clock by at most 500 ppm (adjtimex(2), MAXFREQ): that is no jump.
_SLEWED = 1e-3
_LEAST_JUMP_S = 1e-3
"""Least jump in seconds, above what an interruption between two readings may add."""
_READINGS = 5
_shown: dict[str, XlaShown] = {}
"""The result of each framework's check, once it has run."""


class Session:
    """
    A running profiler session of every framework in use. Raises: CaptureError beside another one.

    Each has its own folder, since two sessions of one second overwrite each other.
    """

    def __init__(self, parent: Path) -> None:
        check_no_session()
        self._started: dict[Framework, Path] = {}
        for framework in traced():
            self._start(framework, Path(tempfile.mkdtemp(dir=parent)))
        self.running = True
        self._clock = WallClock()

    def stop(self) -> Traces:
        """End the session; return its traces. Raises: CaptureError, also if the clock was set."""
        self.running = False
        jump_s = self._clock.jump()
        traces = {}
        for framework, folder in self._started.items():
            try:
                framework.stop_trace()
            except Exception as error:
                self._discard()
                raise CaptureError(
                    f"{framework.name}'s profiler could not write its trace: {error}"
                ) from error
            found = sorted(folder.glob("plugins/profile/*/*.xplane.pb"))
            if not found:
                self._discard()
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
            self._discard()

    def _discard(self) -> None:
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
    Read the trace of a session. Raises: TraceError if it is damaged.

    The host's name is written last, so a file that ends between two planes lacks it.
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
    """Refuse to run beside a session of the user. Raises: CaptureError."""
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
    Copy a trace to where XProf and TensorBoard find it; return its path. Raises: CaptureError.

    It is `<folder>/[<name>/]plugins/profile/<run>/<host>.xplane.pb`. A failed copy leaves nothing.
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

    `more` has the index of its epoch (`epoch`) and the number of its batches (`batches`), if known.
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

    It calls no library, whose functions would count as those of the step. `fetched` receives the
    seconds of each `next()` that gave an element, and those of them in which the thread stood
    still.
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


class WallClock:
    """
    Watches the wall clock, by which profilers date events, from its creation.

    A clock that is set meanwhile gives an event another length, and all shares of its step with it.
    """

    def __init__(self) -> None:
        self._began, self._offset_s = perf_counter(), _offset()

    def jump(self) -> float:
        """Return the seconds by which the clock was set since; 0 if it was not."""
        jump_s = _offset() - self._offset_s
        most_s = max(_LEAST_JUMP_S, _SLEWED * (perf_counter() - self._began))
        return jump_s if abs(jump_s) > most_s else 0.0


def _offset() -> float:
    """Return the wall clock's lead over the other, by the reading that was interrupted least."""
    readings = []
    for _ in range(_READINGS):
        before = perf_counter()
        wall = time.time()
        after = perf_counter()
        readings.append((after - before, wall - (before + after) / 2))
    return min(readings)[1]


def xla_shown(scratch: Path | None = None) -> Mapping[str, XlaShown]:
    """
    Return what traces of this process show of XLA, by framework, from one check of each.

    The check also starts devices, thread pools and LLVM, so that no first step includes it. A
    framework that cannot be checked, as TensorFlow without eager execution, is left out.
    """
    for framework in traced():
        framework.start_devices()
        if framework.name not in _shown and framework.can_compile():
            _shown[framework.name] = _checked(framework, scratch)
    return {
        framework.name: _shown[framework.name] for framework in traced() if framework.can_compile()
    }


def _checked(framework: Framework, scratch: Path | None) -> XlaShown:
    """Compile and run a small function under the profiler, and return what its trace shows."""
    with TemporaryFolder(scratch) as folder:
        session = Session(folder)
        try:
            framework.run_compiled()
            framework.synchronise()
            trace = read_sessions(session.stop())[framework.name]
            return shown_in(trace, f"{framework.name} {framework.version()}")
        except TfperfError as error:
            why = f"the self-check of the profiler failed: {error}"
            return XlaShown(executions=why, compilations=why, modules=why)
        finally:
            session.discard()


def shown_in(trace: Trace, version: str) -> XlaShown:
    """
    Return what a trace shows of a function that XLA compiled and ran in it.

    `version` names the framework with its version, for the reasons.
    """
    host = Events.of(trace.plane(HOST))
    found = {
        "executions": len(xla_runs(host)) > 0,
        "compilations": len(compilations(host)) > 0,
        "modules": bool(live_modules(trace)),
    }
    what = {"executions": "execution", "compilations": "compilation", "modules": "HLO"}
    return XlaShown(
        **{
            name: f"{version} traced a function of XLA's without its {what[name]}, "
            "so its traces cannot tell"
            for name, shows in found.items()
            if not shows
        }
    )
