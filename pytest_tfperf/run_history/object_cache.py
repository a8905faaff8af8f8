"""
Local copies of remote objects, in the user's cache.

Objects do not change, so each is fetched once. The copies that were used last are kept, up to a
limit for all stores of the user together.
"""

from __future__ import annotations

import hashlib
import os
import time
import weakref
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import fsspec

from pytest_tfperf.files import cache_folder, make_private
from pytest_tfperf.temporary import TemporaryFolder

_AT_A_TIME = 256
"""Objects in one request to the file system, which fetches them beside each other."""
MOST_BYTES = 4 << 30
"""Bytes of all copies, from which the ones not used for longest are removed: 33 kB a trace."""
IN_USE_S = 3600.0
"""Seconds since the last use in which a copy stays, since another process may read it."""


class LocalCopies:
    """
    Copies of the objects of one file system, which no other user can change.

    Without a cache they are in a temporary folder, and last as long as this.

    Args:
        files: The file system.
        address: Address of the store, by which its copies are kept apart.
    """

    def __init__(self, files: fsspec.AbstractFileSystem, address: str) -> None:
        digest = hashlib.sha256(address.encode()).hexdigest()[:16]
        self._files = files
        try:
            self._all = cache_folder() / "objects"
            self._all.parent.mkdir(parents=True, exist_ok=True)
            make_private(self._all)
        except (OSError, RuntimeError):  # as without a home
            temporary = TemporaryFolder()
            weakref.finalize(self, temporary.close)
            self._all = temporary.path
        self._folder = self._all / digest

    def of(self, paths: Iterable[str], anew: bool = False) -> list[str]:
        """
        Return the local paths of objects; what is not there yet is fetched.

        Args:
            paths: Paths of the objects.
            anew: True for objects that may have changed, to fetch them all.
        """
        wanted = list(paths)
        absent = [path for path in wanted if anew or not self._is_there(path)]
        for first in range(0, len(absent), _AT_A_TIME):
            fetched = self._files.cat(absent[first : first + _AT_A_TIME], recursive=False)
            with TemporaryFolder(self._all) as folder:
                for path, content in fetched.items():
                    self._copy(path).parent.mkdir(parents=True, exist_ok=True)
                    (folder / "new").write_bytes(content)
                    (folder / "new").replace(self._copy(path))
        copies = [str(self._copy(path)) for path in wanted]
        if absent:
            _remove_oldest(self._all, set(copies))
        return copies

    def forget(self, paths: Iterable[str]) -> None:
        """Remove the copies of damaged objects, so that those are fetched again."""
        for path in paths:
            self._copy(path).unlink(missing_ok=True)

    def _is_there(self, path: str) -> bool:
        """Return whether an object has a copy, and note its use."""
        try:
            os.utime(self._copy(path))
        except FileNotFoundError:
            return False
        except OSError:  # as in a cache that is only read
            return self._copy(path).exists()
        return True

    def _copy(self, path: str) -> Path:
        """Return the path of a copy, which keeps the folders of the object."""
        parts = [part for part in path.strip("/").split("/") if part not in ("", ".", "..")]
        return self._folder.joinpath(*parts)


def _remove_oldest(folder: Path, kept: Collection[str]) -> None:
    """Remove the copies not used for longest until the rest is within the limit, but those kept."""
    found = sorted(_copies(folder))
    n_bytes = sum(size for _, size, _ in found)
    latest = time.time() - IN_USE_S
    for used, size, path in found:
        if n_bytes <= MOST_BYTES or used > latest:
            return
        if path not in kept:
            with suppress(OSError):  # another process may have removed it
                Path(path).unlink()
            n_bytes -= size


def _copies(folder: Path) -> Iterator[tuple[float, int, str]]:
    """Yield time of the last use, size and path of each copy."""
    for root, _, names in os.walk(folder):
        for name in names:
            path = Path(root, name)
            with suppress(OSError):
                status = path.lstat()
                yield status.st_mtime, status.st_size, str(path)
