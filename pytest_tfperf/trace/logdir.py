"""
Trace files in the folders of TensorBoard, XProf and `--tfperf-trace-dir`, and files beside them.

This imports no NumPy, so that the command line starts fast.
"""

from __future__ import annotations

import errno
import itertools
import time
from pathlib import Path

from pytest_tfperf.errors import TraceError

ENDING = ".xplane.pb"
"""End of the names of traces, as profilers write them."""
PACKED = f"{ENDING}.gz"
"""End of the names of traces that gzip has compressed."""
_NAME = "%Y_%m_%d_%H_%M_%S"
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)
_FIRST_FIELD = b"\x0a"
"""The tag of a message's or a text's field 1."""
_CONTINUED = bytes(range(0x80, 0x100))
"""The bytes of a varint but its last."""


def find_runs(path: Path) -> list[Path]:
    """Return the folders of the runs in a logdir, in any order; none for a file."""
    return [run for run in path.glob("**/plugins/profile/*") if _traces_in(run)]


def _traces_in(folder: Path) -> list[Path]:
    """Return the traces in a folder by name; of a trace that is there twice, the plain one."""
    plain = set(folder.glob(f"*{ENDING}"))
    packed = (path for path in folder.glob(f"*{PACKED}") if path.with_suffix("") not in plain)
    return sorted([*plain, *packed])


def host_of(path: Path) -> str:
    """Return the name of the host whose trace a file has."""
    return path.name.removesuffix(".gz").removesuffix(ENDING)


def find_traces(path: Path) -> list[Path]:
    """
    Return the trace files of one run, one for each of its hosts; TraceError if there is none.

    A file is returned as it is. A folder gives its own files or those of the newest run below its
    `plugins/profile/`.
    """
    if not path.is_dir():
        return [path]
    folder = max(find_runs(path), key=lambda run: (run.stat().st_mtime, run.name), default=path)
    found = _traces_in(folder)
    if not found:
        raise TraceError(
            f"no *{ENDING} nor *{PACKED} in {path} nor in plugins/profile/ below it; is this the"
            " logdir of a profile?"
        )
    return found


def name_run(folder: Path, runs: Path) -> Path:
    """
    Rename a folder of traces to a run below `runs`, also beside other processes.

    Its name is the date and the time, as XProf has it, with a number if that is taken.
    """
    name = time.strftime(_NAME)
    for n in itertools.count():
        try:
            return folder.rename(runs / (f"{name}_{n}" if n else name))
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
    raise AssertionError


def other_kind(head: bytes) -> str:
    """
    Say what a file with these first bytes is that a profiler writes beside its trace; else empty.

    A trace begins with a plane, whose first field is a number or its name, as `/host:CPU`. An
    executable's HLO begins with its name, in a message (HloModuleProto) or in two (HloProto,
    xla/service/hlo.proto).
    """
    if head[:1] in (b"{", b"["):
        return (
            "is JSON, such as the timeline that a profiler writes for browsers, and no trace that "
            "tfperf reads: give it the .xplane.pb of the same folder, and a run file to tfperf show"
        )
    if head[:1] == _FIRST_FIELD:
        length, inside = head[1:].lstrip(_CONTINUED)[:1], head[1:].lstrip(_CONTINUED)[1:2]
        if length != b"\0" and (inside == _FIRST_FIELD or inside.isalpha()):
            return (
                "is the HLO of an executable, and no trace: the .xplane.pb of the same profile "
                "holds it, and tfperf padding takes HLO as text too (.hlo, .txt)"
            )
    return ""
