"""Reports as files, by their ending; run files are read again, and the last one is kept."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec

from pytest_tfperf.errors import TfperfError
from pytest_tfperf.files import replace_file
from pytest_tfperf.json_file import JsonFileError, indented_json, plain_strings, read_json
from pytest_tfperf.report.run_details import with_checked_details
from pytest_tfperf.runs import Run, damaged

ENDINGS = (".json", ".html", ".md", ".csv")
CACHE = "tfperf"
"""Folder in pytest's cache, as `config.cache.mkdir` makes it."""
_NAME = "last_run.json"
_PLACE = Path(".pytest_cache", "d", CACHE, _NAME)


def write_run(run: Run, path: Path) -> None:
    """Write a run by its file's ending, or raise TfperfError and leave the old file as it was."""
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
    """Read a run file of whomever, or raise TfperfError if it cannot be read or is none."""
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


def keep_last_run(run: Run, folder: Path) -> None:
    """Write a run in place of the one that is kept, or raise TfperfError."""
    write_run(run, folder / _NAME)


def find_last_run(start: Path) -> Path:
    """
    Return the kept run of the nearest folder that has one, or raise TfperfError.

    A folder above the root of a git repository does not count, nor the folder of all users'
    temporary files above a project, nor a file that another user put anywhere.
    """
    for folder in (start, *start.parents):
        file = folder / _PLACE
        if file.is_file() and _is_of_project(file, folder, start):
            return file
        if (folder / ".git").exists():
            break
    raise TfperfError(
        f"no results of a pytest run: no {_PLACE.as_posix()} in {start} or above. pytest writes it "
        "when it has profiled a test, unless its cache is off or has another cache_dir"
    )


def _is_of_project(file: Path, folder: Path, start: Path) -> bool:
    """Return whether the last run of a folder above `start` can be that of its project."""
    if not hasattr(os, "getuid"):
        return True
    if folder != start and folder.stat().st_mode & stat.S_ISVTX:  # as /tmp
        return False
    return file.stat().st_uid in (os.getuid(), 0, start.stat().st_uid)
