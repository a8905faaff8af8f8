"""
Baseline files as an update will leave them.

The lock of an update keeps other runs of this user on this machine away. Another user, another
machine with the same files, or git may still change a file after it was read. That is seen just
before the files take their places.
"""

from __future__ import annotations

import json
from pathlib import Path

from pytest_tfperf.baseline.store import read_file
from pytest_tfperf.errors import BaselineError
from pytest_tfperf.files import NotReplacedError, replace_files
from pytest_tfperf.text import and_more
from pytest_tfperf.values import Json

_NAMED = 3
_GENERATED = b"""# Written by pytest-tfperf. Reviews fold these files.
*.py.json linguist-generated gitlab-generated
"""


class OutdatedError(BaselineError):
    """A file is no longer as it was when it was read; nothing was written."""


class Draft:
    """The files of one update: as they were read, and as they are to be."""

    def __init__(self) -> None:
        self._read: dict[Path, Json] = {}
        self._changed: dict[Path, Json] = {}

    def content(self, path: Path) -> Json:
        """
        Return the content of a file with its changes; empty if there is none.

        Raises:
            BaselineError: If it cannot be read.
        """
        if path not in self._changed and path not in self._read:
            self._read[path] = read_file(path)
        return self._changed.get(path) or self._read[path]

    def change(self, path: Path, content: Json) -> None:
        """Give a file that was read another content."""
        self._changed[path] = content

    def write(self) -> None:
        """
        Replace the files that change: all of them or none, where the file system lets each do so.

        Raises:
            OutdatedError: If one was changed since it was read; nothing is written then.
            BaselineError: If one cannot be written; the message says whether others were.
        """
        texts = {path: _text(content) for path, content in self._changed.items()}
        for folder in {path.parent for path, one in self._changed.items() if "lists" in one}:
            if not (folder / ".gitattributes").exists():
                texts[folder / ".gitattributes"] = _GENERATED
        try:
            replace_files(texts, self._check)
        except NotReplacedError as error:
            state = _state(error, len(texts))
            raise BaselineError(
                f"baseline {error.path}: cannot be written: {error.why}; {state}"
            ) from error

    def _check(self) -> None:
        for path in self._changed:
            if read_file(path) != self._read[path]:
                raise OutdatedError(
                    f"baseline {path}: another program changes it at the same time; nothing was "
                    "changed, try again when it is done"
                )


def _text(content: Json) -> bytes:
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False)
    return f"{text}\n".encode(errors="backslashreplace")  # JSON's escapes of surrogates too


def _state(error: NotReplacedError, n_files: int) -> str:
    if not error.done:
        return "nothing was changed"
    written = and_more([str(path) for path in error.done], _NAMED)
    return (
        f"{len(error.done)} of {n_files} files were written before ({written}); mend that, and run "
        "the same again: it writes the rest"
    )
