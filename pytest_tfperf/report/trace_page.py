"""Pages of analysed traces as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_tfperf.errors import TfperfError
from pytest_tfperf.files import replace_file

if TYPE_CHECKING:
    from pytest_tfperf.metrics.multi_host import AnalysedTrace
    from pytest_tfperf.report.trace_comparison import ComparedTrace


def refuse_other_format(path: Path | None) -> None:
    """Raise TfperfError if a page is to be written to a file whose ending is not .html."""
    if path is not None and path.suffix.lower() != ".html":
        raise TfperfError(f"{path}: a page of traces ends in .html")


def write_traces(traces: Sequence[AnalysedTrace], path: Path) -> None:
    """
    Write the page of analysed traces.

    Args:
        traces: The traces, at least one.
        path: File to write; an old one is unchanged if that fails.

    Raises:
        TfperfError: If it cannot be written.
    """
    from pytest_tfperf.report.html.trace_pages import render_traces  # jinja2

    _write(path, render_traces(traces))


def write_compared(before: ComparedTrace, after: ComparedTrace, path: Path) -> None:
    """
    Write the page of two traces.

    Args:
        before: The first trace.
        after: The second trace.
        path: File to write; an old one is unchanged if that fails.

    Raises:
        TfperfError: If it cannot be written.
    """
    from pytest_tfperf.report.html.trace_pages import render_compared  # jinja2

    _write(path, render_compared(before, after))


def _write(path: Path, page: str) -> None:
    try:
        replace_file(path, page)
    except OSError as error:
        raise TfperfError(f"{path}: cannot be written: {error.strerror}") from error
