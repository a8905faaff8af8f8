"""Local copies of remote objects, in the user's cache; the objects never change."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import fsspec

from pytest_tfperf.files import cache_folder, replacing

_AT_A_TIME = 256
"""Objects in one request to the file system, which fetches them beside each other."""


class LocalCopies:
    """
    Copies of the objects of one file system.

    Args:
        files: The file system.
        address: Address of the store, by which its copies are kept apart.
    """

    def __init__(self, files: fsspec.AbstractFileSystem, address: str) -> None:
        digest = hashlib.sha256(address.encode()).hexdigest()[:16]
        self._files, self._folder = files, cache_folder() / "trace_results" / digest

    def of(self, paths: Iterable[str]) -> list[str]:
        """Return the local paths of objects; what is not there yet is fetched."""
        wanted = list(paths)
        absent = [path for path in wanted if not self._copy(path).exists()]
        for first in range(0, len(absent), _AT_A_TIME):
            fetched = self._files.cat(absent[first : first + _AT_A_TIME], recursive=False)
            for path, content in fetched.items():
                with replacing(self._copy(path)) as file:
                    file.write(content)
        return [str(self._copy(path)) for path in wanted]

    def _copy(self, path: str) -> Path:
        """Return the path of a copy, which keeps the folders that name project and class."""
        parts = [part for part in path.strip("/").split("/") if part not in ("", ".", "..")]
        return self._folder.joinpath(*parts)
