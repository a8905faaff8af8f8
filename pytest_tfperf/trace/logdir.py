"""Where trace files are: in the folders that TensorBoard, XProf and `--tfperf-trace-dir` keep them in."""

from __future__ import annotations

from pathlib import Path

from pytest_tfperf.errors import TraceError

_PATTERN = "*.xplane.pb"


def find_traces(path: Path) -> list[Path]:
    """
    The trace files of one run: a file itself; of a folder the files in it, or of the newest run below `plugins/profile/`.

    A run of several hosts has one file for each.

    Raises:
        TraceError: If there is none.
    """
    if not path.is_dir():
        return [path]
    runs = [run for run in path.glob("**/plugins/profile/*") if any(run.glob(_PATTERN))]
    folder = max(runs, key=lambda run: (run.stat().st_mtime, run.name), default=path)
    found = sorted(folder.glob(_PATTERN))
    if not found:
        raise TraceError(
            f"no {_PATTERN} in {path} nor in plugins/profile/ below it; is this the logdir of a profile?"
        )
    return found
