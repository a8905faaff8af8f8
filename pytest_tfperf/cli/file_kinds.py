"""Tell run files and traces apart, by their content."""

from __future__ import annotations

from pathlib import Path

from pytest_tfperf.errors import TfperfError
from pytest_tfperf.files import open_regular
from pytest_tfperf.trace.logdir import other_kind

_HEAD = 400  # bytes
_KEYS = (b'"created"', b'"tests"')
_FIRST_FIELD = b"\x0a"  # the tag of XSpace.planes; no JSON begins with a plane's length after it
_ENDINGS = (".xplane.pb", ".xplane.pb.gz")


def refuse_run_file(path: Path) -> None:
    """Raise TfperfError if a file is a run file, where a trace is wanted."""
    head = _head(path).lstrip()
    if head.startswith(b"{") and b'"format"' in head and any(key in head for key in _KEYS):
        raise TfperfError(f"{path} is a run file, not a trace: tfperf show {path} shows it")


def refuse_trace(path: Path) -> None:
    """Raise TfperfError if a file or a folder is a trace, where a run file is wanted."""
    head = _head(path)
    if _is_message(head) and (other := other_kind(head)):
        raise TfperfError(f"{path} {other}")
    if path.is_dir() or path.name.endswith(_ENDINGS) or _is_message(head):
        raise TfperfError(f"{path} is a trace, not a run file: tfperf analyze {path} shows it")


def _is_message(head: bytes) -> bool:
    """Return whether a file begins as an XSpace does; JSON may begin with a line break, too."""
    return head.startswith(_FIRST_FIELD) and not head.lstrip().startswith((b"{", b"["))


def _head(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read(_HEAD)
    except OSError:  # whoever reads the file says why
        return b""
