"""Trace all workers of a running job at the same time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.files import on_disk
from pytest_tfperf.remote.addresses import Worker
from pytest_tfperf.remote.call import Call, NothingTracedError, load_grpc
from pytest_tfperf.remote.profiler_service import Destination, encode_request
from pytest_tfperf.remote.trace_options import TraceOptions
from pytest_tfperf.temporary import TemporaryFolder
from pytest_tfperf.trace.logdir import name_run

__tracebackhide__ = True

_PAUSE_S = 1.0
"""Pause before another attempt."""
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


def capture_job(workers: Sequence[Worker], plan: CapturePlan, logdir: Path) -> CapturedJob:
    """
    Trace the workers at the same time, and write the traces into a new run of a logdir.

    Args:
        workers: The workers.
        plan: The way to trace them.
        logdir: Folder that gets the run, as XProf and TensorBoard lay it out.

    Raises:
        CaptureError: If gRPC is not installed, or the folder cannot be written.
    """
    load_grpc()
    runs = logdir / "plugins" / "profile"
    try:
        runs.mkdir(parents=True, exist_ok=True)
        with TemporaryFolder(runs) as temporary:
            (temporary / _RUN).mkdir()
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
    Trace the workers, and those that gave nothing again.

    Args:
        workers: The workers.
        plan: The way to trace them.
        folder: Folder that holds the run's folder.

    Returns:
        Trace files, and why others have none, in the order of the workers.
    """
    traces: dict[Worker, Path] = {}
    errors: dict[Worker, CaptureError] = {}
    waiting = list(workers)
    for attempt in range(1, plan.attempts + 1):
        if attempt > 1:
            time.sleep(_PAUSE_S)
        found = _attempt(waiting, plan.options, folder)
        for worker, result in found.items():
            if isinstance(result, Path):
                traces[worker] = result
                errors.pop(worker, None)
            else:
                tried = f" (attempt {attempt})" if attempt > 1 else ""
                errors[worker] = CaptureError(f"{worker.target}: {result}{tried}")
        waiting = [w for w, result in found.items() if isinstance(result, NothingTracedError)]
        if not waiting:
            break
    in_order = [worker for worker in workers if worker in traces]
    return [traces[worker] for worker in in_order], [
        errors[worker] for worker in workers if worker in errors
    ]


def _attempt(
    workers: Sequence[Worker], options: TraceOptions, folder: Path
) -> dict[Worker, Path | CaptureError]:
    """
    Trace the workers once, all at the same time.

    Args:
        workers: The workers.
        options: Duration and detail of each trace.
        folder: Folder that holds the run's folder.

    Returns:
        The trace file of each worker, or why there is none.
    """
    found: dict[Worker, Path | CaptureError] = {}
    with ExitStack() as calls:
        started = {
            worker: calls.enter_context(
                closing(Call(worker, _request(worker, options, folder), options.duration_ms))
            )
            for worker in workers
        }
        for worker, call in started.items():
            path = folder / _RUN / f"{worker.file_stem}.xplane.pb"
            try:
                trace = call.trace()
                if trace is not None:
                    with on_disk(path) as file:
                        file.write(trace)
                elif not path.is_file():
                    raise CaptureError(
                        "its profiler server returns no trace, and wrote it on its own machine as "
                        f"{path}; capture there, or update its TensorFlow or JAX"
                    )
                found[worker] = path
            except CaptureError as error:
                found[worker] = error
    return found


def _request(worker: Worker, options: TraceOptions, folder: Path) -> bytes:
    destination = Destination(repository=str(folder.resolve()), run=_RUN, host=worker.file_stem)
    return encode_request(options, destination)
