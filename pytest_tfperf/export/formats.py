"""Export of traces for Chrome and Perfetto, and of XLA modules as text and pictures."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

from pytest_tfperf.errors import ExportError
from pytest_tfperf.export.timeline import processes_of
from pytest_tfperf.export.tracks import Process, write_chrome
from pytest_tfperf.files import replacing
from pytest_tfperf.hlo.dot import dot_of, svg_of
from pytest_tfperf.hlo.module import HloModule
from pytest_tfperf.hlo.printer import text_of

__tracebackhide__ = True

_Format = TypeVar("_Format")


def export_traces(traces: Sequence[Path], out: Path) -> None:
    """
    Write the traces of one run to a file, in the memory of one; its ending tells the format.

    Raises ExportError, or TraceError if a trace cannot be read; the file is not changed then.
    """
    write = _of_ending(_WRITERS, out)
    try:
        with replacing(out) as file:
            write(file, processes_of(traces))
    except OSError as error:
        raise ExportError(f"{out} cannot be written: {error.strerror or error}") from error


def export_hlo(modules: Sequence[HloModule], out: Path) -> None:
    """
    Write XLA modules: all of them as HLO text (.txt), or the first as a graph (.dot, .svg).

    Without a format of that ending, a module, or Graphviz (.svg) it raises ExportError.
    """
    content_of = _of_ending(_HLO, out)
    if not modules:
        raise ExportError(f"{out}: there is no XLA module to write")
    content = content_of(modules)
    try:
        with replacing(out) as file:
            file.write(content)
    except OSError as error:
        raise ExportError(f"{out} cannot be written: {error.strerror or error}") from error


def shows_hlo(out: Path) -> bool:
    """Return whether `export_hlo` writes files with this ending."""
    return out.name.lower().endswith(tuple(_HLO))


def _of_ending(formats: Mapping[str, _Format], out: Path) -> _Format:
    if out.name.lower().endswith((".pftrace", ".perfetto-trace")):
        raise ExportError(f"{out}: write a .json.gz file instead, which ui.perfetto.dev opens")
    found = next(
        (one for ending, one in formats.items() if out.name.lower().endswith(ending)), None
    )
    if found is None:
        raise ExportError(
            f"{out}: no format has this ending; take one of {', '.join([*_WRITERS, *_HLO])}"
        )
    return found


def _compressed(file: BinaryIO, processes: Iterable[Process]) -> None:
    """Compress Chrome's JSON, without a time, so that one trace always gives one file."""
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as packed:
        write_chrome(packed, processes)  # type: ignore[arg-type]


_WRITERS: dict[str, Callable[[BinaryIO, Iterable[Process]], None]] = {
    ".json": write_chrome,
    ".json.gz": _compressed,
}

_HLO: dict[str, Callable[[Sequence[HloModule]], bytes]] = {
    ".txt": lambda modules: "\n".join(map(text_of, modules)).encode(),
    ".dot": lambda modules: dot_of(modules[0]).encode(),
    ".svg": lambda modules: svg_of(dot_of(modules[0])),
}
