"""Trace all workers of a running job at the same time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from pytest_tfperf.errors import CaptureError, TraceError
from pytest_tfperf.files import on_disk
from pytest_tfperf.machine.locks import held
from pytest_tfperf.remote.profiler_service import (
    BeingTracedError,
    Call,
    NothingTracedError,
    TraceOptions,
    Worker,
    encode_request,
    load_grpc,
)
from pytest_tfperf.temporary import TemporaryFolder
from pytest_tfperf.trace.logdir import name_run
from pytest_tfperf.trace.xspace import decode_trace, read_trace

__tracebackhide__ = True

_PAUSE_S = 1.0
"""Pause before another attempt."""
_LONGEST_PAUSE_S = 10.0
"""Longest pause for the trace of another client, which may be as long as this one."""
_LONGEST_NAME = 100
_RUN = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturePlan:
    """The way in which a job is traced."""

    options: TraceOptions
    """Duration and detail of each trace."""
    attempts: int = 3
    """Attempts with a worker that cannot be reached, is being traced, or ran nothing."""
    requires_all: bool = False
    """True if nothing is kept unless every worker was traced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedJob:
    """The traces of a job."""

    traces: tuple[Path, ...]
    """Trace files of one run, one a worker."""
    errors: tuple[CaptureError, ...]
    """Why other workers have none, one a worker."""


def capture_job(
    workers: Sequence[Worker], plan: CapturePlan, logdir: Path, announce: Callable[[str], None]
) -> CapturedJob:
    """
    Trace the workers at the same time into a new run of a logdir, or raise CaptureError.

    A process has one profiler. So other captures of this user on this machine wait for this one.
    """
    load_grpc()
    runs = logdir / "plugins" / "profile"
    if not Path(os.path.realpath(runs)).is_relative_to(os.path.realpath(logdir)):
        raise CaptureError(
            f"{runs} leads out of {logdir} by a link; nothing was traced, name the folder itself"
        )
    try:
        runs.mkdir(parents=True, exist_ok=True)
        with TemporaryFolder(runs) as temporary:
            (temporary / _RUN).mkdir()
            awaited = "another trace of this job has ended"
            with held(_lock_names(workers), announce, awaited=awaited):
                traces, errors = _traced(workers, plan, temporary)
            if not traces or (errors and plan.requires_all):
                return CapturedJob(traces=(), errors=tuple(errors))
            run = name_run(temporary / _RUN, runs)
    except OSError as error:
        raise CaptureError(f"no trace can be written in {logdir}: {error.strerror}") from error
    kept = tuple(run / trace.name for trace in traces)
    return CapturedJob(traces=kept, errors=tuple(errors))


def _traced(
    workers: Sequence[Worker], plan: CapturePlan, folder: Path
) -> tuple[list[Path], list[CaptureError]]:
    """
    Trace the workers, those that gave nothing again; return the traces, and why others have none.

    If all are required, all are traced again: only traces of the same time have common steps.
    """
    found: dict[Worker, Path | CaptureError] = {}
    waiting = list(workers)
    for attempt in range(1, plan.attempts + 1):
        tried = f" (after {attempt} attempts)" if attempt > 1 else ""
        failed: dict[Worker, CaptureError] = {}
        for worker, result in _attempt(waiting, plan.options, folder).items():
            found[worker] = result
            if isinstance(result, CaptureError):
                failed[worker] = result
                found[worker] = CaptureError(f"{worker.address}: {result}{tried}")
        again = [w for w, error in failed.items() if isinstance(error, NothingTracedError)]
        is_hopeless = plan.requires_all and len(again) < len(failed)
        if not again or is_hopeless or attempt == plan.attempts:
            break
        time.sleep(_pause_s(list(failed.values()), plan.options))
        waiting = list(workers) if plan.requires_all else again
    traces = [result for result in found.values() if isinstance(result, Path)]
    return traces, [result for result in found.values() if isinstance(result, CaptureError)]


def _lock_names(workers: Sequence[Worker]) -> list[str]:
    """Return names of locks, short enough for a file, in an order that prevents deadlocks."""
    return sorted({f"profiler-{worker.file_stem[-_LONGEST_NAME:]}" for worker in workers})


def _pause_s(errors: Sequence[CaptureError], options: TraceOptions) -> float:
    """Return the pause before the next attempt, longer if another client traces a worker."""
    if any(isinstance(error, BeingTracedError) for error in errors):
        return max(_PAUSE_S, min(options.duration_ms / 1e3, _LONGEST_PAUSE_S))
    return _PAUSE_S


def _attempt(
    workers: Sequence[Worker], options: TraceOptions, folder: Path
) -> dict[Worker, Path | CaptureError]:
    """Trace all workers once, at the same time; return the trace of each, or why it has none."""
    found: dict[Worker, Path | CaptureError] = {}
    paths = {worker: folder / _RUN / f"{worker.file_stem}.xplane.pb" for worker in workers}
    for path in paths.values():
        path.unlink(missing_ok=True)  # that of an earlier attempt
    with ExitStack() as calls:
        started = {}
        for worker in workers:
            request = encode_request(options, str(folder.resolve()), _RUN, worker.file_stem)
            call = Call(worker, request, options.duration_ms)
            started[worker] = calls.enter_context(closing(call))
        for worker, call in started.items():
            try:
                _write(call.trace(), paths[worker])
                found[worker] = paths[worker]
            except CaptureError as error:
                found[worker] = error
    return found


def _write(trace: bytes | None, path: Path) -> None:
    """Write a trace, unless its server has; no trace, or one elsewhere, raises CaptureError."""
    if trace is None and not path.is_file():
        raise CaptureError(
            "its profiler server returns no trace, and wrote it on its own machine as "
            f"{path}; capture there, or update its TensorFlow or JAX"
        )
    try:
        if trace is None:
            read_trace(path)
        else:
            decode_trace(trace, path.name)
    except TraceError as error:
        path.unlink(missing_ok=True)
        raise CaptureError(f"its answer is no trace: {error}") from None
    if trace is not None:
        with on_disk(path) as file:
            file.write(trace)
