"""The results of the last run that profiled something, which pytest keeps in its cache."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pytest_tfperf.errors import TfperfError
from pytest_tfperf.report.run_file import write_run
from pytest_tfperf.runs import Run

CACHE = "tfperf"
"""Folder in pytest's cache, as `config.cache.mkdir` makes it."""
_NAME = "last_run.json"
_PLACE = Path(".pytest_cache", "d", CACHE, _NAME)


def keep_last_run(run: Run, folder: Path) -> None:
    """
    Write a run in place of the one that is kept.

    Raises:
        TfperfError: If it cannot be written; the old one is then unchanged.
    """
    write_run(run, folder / _NAME)


def find_last_run(start: Path) -> Path:
    """
    Return the kept run of the project that a folder belongs to: of the nearest folder above.

    A folder above the root of a git repository does not count, nor the folder of all users'
    temporary files above a project, nor a file that another user put anywhere.

    Raises:
        TfperfError: If there is none.
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
