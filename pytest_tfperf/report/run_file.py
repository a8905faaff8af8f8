"""Reports as files, by their ending; JSON run files can be read again."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pytest_tfperf.errors import TfperfError
from pytest_tfperf.files import replace_file
from pytest_tfperf.json_file import JsonFileError, indented_json, plain_strings, read_json
from pytest_tfperf.report.run_details import with_checked_details
from pytest_tfperf.runs import Run, damaged

ENDINGS = (".json", ".html", ".md", ".csv")


def write_run(run: Run, path: Path) -> None:
    """
    Write a report (.html, .md, .csv), or a run file (.json).

    Raises:
        TfperfError: If it cannot be written, or has another ending; an old file is then unchanged.
    """
    if path.suffix.lower() not in ENDINGS:
        raise TfperfError(f"report {path}: the file ending must be one of {', '.join(ENDINGS)}")
    try:
        replace_file(path, _rendered(run, path))
    except OSError as error:
        raise TfperfError(f"report {path}: cannot be written: {error.strerror}") from error


def _rendered(run: Run, path: Path) -> str:
    """Render the content for a file's ending; renderers are slow to load."""
    ending = path.suffix.lower()
    if ending == ".html":
        from pytest_tfperf.report.html.page import render_html

        return render_html(run, path.parent)
    if ending == ".md":
        from pytest_tfperf.report.markdown import render_markdown

        return render_markdown(run)
    if ending == ".csv":
        from pytest_tfperf.report.csv import render_csv

        return render_csv(run)
    return indented_json(run.to_json()) + "\n"


def read_run(path: Path) -> Run:
    """
    Read a run file, which may come from another person or program.

    Raises:
        TfperfError: If it cannot be read, or is not a run file.
    """
    try:
        data = read_json(path)
    except FileNotFoundError as error:
        raise TfperfError(f"{path}: cannot be read: {error.strerror}") from error
    except JsonFileError as error:
        raise TfperfError(f"{path}: not a run file of pytest --tfperf-report: {error}") from error
    if isinstance(data, dict) and isinstance(data.get("tests"), dict):
        raise TfperfError(
            f"{path}: a baseline file, and not a run file; write one with pytest --tfperf-report"
        )
    run = Run.from_json(plain_strings(data), str(path))
    try:
        return with_checked_details(run)
    except msgspec.ValidationError as error:
        raise damaged(str(path), error) from error
