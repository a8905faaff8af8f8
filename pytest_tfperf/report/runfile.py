"""Run files: a `Run` as JSON, written by `--tfperf-report run.json` and read by `tfperf`."""

from __future__ import annotations

import json
from pathlib import Path

from pytest_tfperf.errors import TfperfError
from pytest_tfperf.files import replace_file
from pytest_tfperf.results import Run


def write_run(run: Run, path: Path) -> None:
    """
    Write a run file.

    Raises:
        TfperfError: If that cannot be done; a file that was there is then as it was.
    """
    try:
        replace_file(path, json.dumps(run.to_json(), indent=1, allow_nan=False) + "\n")
    except OSError as error:
        raise TfperfError(f"report {path}: cannot be written: {error.strerror}") from error


def read_run(path: Path) -> Run:
    """
    The run in a file.

    Raises:
        TfperfError: If it cannot be read or holds none.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TfperfError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise TfperfError(f"{path}: not a run file of pytest --tfperf-report: {error}") from error
    return Run.from_json(data, str(path))
