"""XSpace traces for other viewers: Chrome's trace JSON, and Perfetto's own format."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from pytest_tfperf.errors import ExportError
from pytest_tfperf.export.chrome import write_chrome
from pytest_tfperf.export.perfetto import write_perfetto
from pytest_tfperf.export.tracks import Process, processes_of
from pytest_tfperf.files import replacing

_Writer = Callable[[BinaryIO, Iterable[Process]], None]


def export_traces(traces: Sequence[Path], out: Path) -> None:
    """
    Write the traces of one run, one for each host, to a file of the format that its ending says.

    Memory is that of one decoded trace, however large the file.

    Raises:
        ExportError: If no format has that ending, or the file cannot be written.
        TraceError: If a trace cannot be read. The file is then as it was.
    """
    write = _writer(out)
    try:
        with replacing(out) as file:
            write(file, processes_of(traces))
    except OSError as error:
        raise ExportError(f"{out} cannot be written: {error.strerror or error}") from error


def _writer(out: Path) -> _Writer:
    found = next((writer for ending, writer in _WRITERS.items() if out.name.lower().endswith(ending)), None)
    if found is None:
        raise ExportError(f"{out}: no format has this ending; take one of {', '.join(_WRITERS)}")
    return found


def _compressed(file: BinaryIO, processes: Iterable[Process], write: _Writer) -> None:
    """What a writer writes, compressed; the time is left out, so that the same trace gives the same bytes."""
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as packed:
        write(packed, processes)  # type: ignore[arg-type]


_WRITERS: dict[str, _Writer] = {
    ".json": write_chrome,
    ".json.gz": partial(_compressed, write=write_chrome),
    ".perfetto-trace": write_perfetto,
    ".pftrace": write_perfetto,
}
