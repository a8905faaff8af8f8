"""Trace files in the folders of TensorBoard, XProf and `--tfperf-trace-dir`."""

from __future__ import annotations

from pathlib import Path

from pytest_tfperf.errors import TraceError

_PATTERN = "*.xplane.pb"


def find_runs(path: Path) -> list[Path]:
    """Return the folders of the runs in a logdir, in any order; none for a file."""
    return [run for run in path.glob("**/plugins/profile/*") if any(run.glob(_PATTERN))]


def find_traces(path: Path) -> list[Path]:
    """
    Find the trace files of one run, one for each of its hosts.

    A file is returned as it is. A folder gives its own files or those of the newest run below its
    `plugins/profile/`.

    Raises:
        TraceError: If there is none.
    """
    if not path.is_dir():
        return [path]
    folder = max(find_runs(path), key=lambda run: (run.stat().st_mtime, run.name), default=path)
    found = sorted(folder.glob(_PATTERN))
    if not found:
        raise TraceError(
            f"no {_PATTERN} in {path} nor in plugins/profile/ below it; is this the logdir of a"
            " profile?"
        )
    return found
