"""Sessions of TensorFlow's profiler, their XSpace files, and the marks of steps in them."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from time import perf_counter
from typing import Any

from pytest_tfperf.errors import CaptureError, TraceError
from pytest_tfperf.files import on_disk
from pytest_tfperf.machine.wall_clock import WallClock
from pytest_tfperf.quantities import SECONDS, format_quantity
from pytest_tfperf.temporary import TemporaryFolder
from pytest_tfperf.tf_log import information_hidden
from pytest_tfperf.tf_runtime import load_tensorflow
from pytest_tfperf.trace.logdir import name_run
from pytest_tfperf.trace.xspace import Trace, read_trace
from pytest_tfperf.values import FETCH, FETCH_PYTHON

__tracebackhide__ = True


class Session:
    """
    A running profiler session.

    Each session has its own folder, since two sessions of one second overwrite each other.

    Raises:
        CaptureError: If another profiler is running in the process.
    """

    def __init__(self, parent: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(dir=parent))
        self._profiler = _profiler()
        check_no_session()
        try:
            with information_hidden():
                self._profiler.start(str(self._folder))
        except Exception as error:
            stop_quietly()  # a failed start blocks later ones until a stop
            raise CaptureError(
                f"TensorFlow's profiler cannot start: {error}; is another profiler running?"
            ) from error
        self.running = True
        self._clock = WallClock()

    def stop(self) -> Path:
        """
        End the session and return the path of its `.xplane.pb`.

        Raises:
            CaptureError: If the profiler wrote none, or the clock of its events was set.
        """
        self.running = False
        jump_s = self._clock.jump()
        try:
            with information_hidden():
                self._profiler.stop()
        except Exception as error:
            raise CaptureError(
                f"TensorFlow's profiler could not write its trace: {error}"
            ) from error
        traces = sorted(self._folder.glob("plugins/profile/*/*.xplane.pb"))
        if not traces:
            raise CaptureError(f"TensorFlow's profiler wrote no .xplane.pb under {self._folder}")
        if jump_s:
            raise CaptureError(
                f"the clock of this machine was set {_said(jump_s)} while steps were traced, and "
                "TensorFlow's profiler dates its events by it: run again"
            )
        return traces[0]

    def discard(self) -> None:
        """End the session, if it runs, without a trace."""
        if self.running:
            self.running = False
            stop_quietly()


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


def user_session_runs() -> bool:
    """Return whether the user runs a session of `tf.profiler.experimental` in this process."""
    # private: tensorflow/python/profiler/profiler_v2.py keeps the only session of the process
    # here (2.18 to 2.22)
    return getattr(_profiler_module(), "_profiler", None) is not None


def check_no_session() -> None:
    """
    Refuse to run beside a session of the user.

    Raises:
        CaptureError: If one runs in this process.
    """
    if user_session_runs():
        raise CaptureError(
            "a TensorFlow profiler session is already running in this process"
            " (tf.profiler.experimental.start, or a TensorBoard callback with profile_batch);"
            " stop it before the step is profiled"
        )


def stop_quietly() -> None:
    """Stop the session of the process, if there is one, and discard its trace."""
    try:
        with information_hidden():
            _profiler().stop(save=False)
    except load_tensorflow().errors.UnavailableError:  # no session was running
        return


def _profiler() -> Any:
    return load_tensorflow().profiler.experimental


def _profiler_module() -> Any:
    load_tensorflow()
    from tensorflow.python.profiler import profiler_v2

    return profiler_v2


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


def _said(jump_s: float) -> str:
    shown = format_quantity(abs(jump_s), SECONDS)
    return f"forward by {shown}" if jump_s > 0 else f"back by {shown}"


class StepMark:
    """
    The event of one step, from its creation to `end`.

    Args:
        kind: Kind of the loop (step, train, test, predict).
        n_step: Index of the step.
        epoch: Index of its epoch.
        batches: Number of batches in the step.
    """

    def __init__(self, kind: str, n_step: int, epoch: int, batches: int) -> None:
        trace = load_tensorflow().profiler.experimental.Trace
        self._event = trace(kind, step_num=n_step, _r=1, tfperf=1, epoch=epoch, batches=batches)
        self._event.__enter__()

    def abort(self) -> None:
        """Mark the event as not a step."""
        self._event.set_metadata(aborted=1)

    def end(self) -> None:
        """End the event."""
        self._event.__exit__(None, None, None)


class Fetching:
    """
    The context of a step's `next()`; the trace of a session marks it as the input pipeline's time.

    It calls no library, whose functions would count as those of the step.

    Args:
        fetched: Receives the seconds of each `next()` that gave an element.
    """

    def __init__(self, fetched: Callable[[float], None]) -> None:
        self.runs = False
        self._fetched, self._start = fetched, 0.0
        self._event: AbstractContextManager[Any] | None = None

    def mark(self, from_python: bool) -> Fetching:
        """Mark the next context in the trace."""
        trace = load_tensorflow().profiler.experimental.Trace
        self._event = trace(FETCH_PYTHON if from_python else FETCH)
        return self

    def __enter__(self) -> None:
        self.runs = True
        self._start = perf_counter()
        if self._event is not None:
            self._event.__enter__()

    def __exit__(self, error: object, *_: object) -> None:
        event, self._event = self._event, None
        if event is not None:
            event.__exit__(None, None, None)
        if error is None:
            self._fetched(perf_counter() - self._start)
        self.runs = False
