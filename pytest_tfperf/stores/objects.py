"""
Objects below one folder of any file system that fsspec reaches: a folder, s3://, gs://, az://.

Others see all of an object or nothing, so writers need no lock. Objects elsewhere are copied into
the user's cache when they are read. They do not change, so each is fetched once. The copies that
were used last are kept, up to a limit for all stores of the user together.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec

from pytest_tfperf.errors import StoreError
from pytest_tfperf.files import cache_folder, make_private, replacing
from pytest_tfperf.temporary import TemporaryFolder

_SECRET = re.compile(r"(?<=://)[^/@]*@")
_AT_A_TIME = 256
"""Objects in one request to the file system, which fetches them beside each other."""
MOST_BYTES = 4 << 30
"""Bytes of all copies, from which the ones not used for longest are removed: 33 kB a trace."""
IN_USE_S = 3600.0
"""Seconds since the last use in which a copy stays, since another process may read it."""


class Objects:
    """Objects below one folder, which messages call by their kind and address."""

    def __init__(self, address: str, kind: str) -> None:
        self.address, self._kind = address, kind
        self.name = f"{kind} {without_secret(address)}"
        with blaming(self.name):
            self._files, self.root = fsspec.core.url_to_fs(address)
        self.is_local = is_of(self._files, "file")
        self._copies = None if self.is_local else LocalCopies(self._files, address)

    @property
    def is_of_process(self) -> bool:
        """True if other processes do not see the objects."""
        return is_of(self._files, "memory")

    @contextmanager
    def blaming(self, what: str) -> Iterator[None]:
        """Name the store and what failed in errors; what was listed before is listed again."""
        self._files.invalidate_cache()
        try:
            with blaming(f"{self.name} {what}"):
                yield
        except StoreError as error:
            if str(error).startswith(f"{self._kind} "):
                raise
            raise StoreError(f"{self.name}: {error}") from error

    def refuse_missing(self, first: str) -> None:
        """Refuse a local folder that is not there, and say what makes it; buckets have none."""
        if not self.is_local or self._files.isdir(self.root):
            return
        if self._files.exists(self.root):
            raise StoreError(f"{self.name}: it is no folder")
        raise StoreError(f"{self.name}: there is no such folder; {first}")

    def refuse_newer(self, kinds: Iterable[str], most: int) -> None:
        """Refuse folders such as `rows-2` of a version to come, by the format that this reads."""
        try:
            listed = self._files.ls(self.root, detail=False)
        except FileNotFoundError:
            return
        form = re.compile(rf"(?:{'|'.join(kinds)})-(\d{{1,6}})")
        found = (form.fullmatch(PurePosixPath(path.rstrip("/")).name) for path in listed)
        newest = max((int(one[1]) for one in found if one), default=most)
        if newest > most:
            raise StoreError(
                f"{self.name}: it has rows of format {newest}, and this version reads up to {most};"
                " upgrade pytest-tfperf"
            )

    def below(self, folder: str, endings: tuple[str, ...]) -> list[str]:
        """Return the paths of the objects below a folder, at any depth, in order."""
        # what another process writes at this moment has another ending
        found = find(self._files, f"{self.root}/{folder}")
        return sorted(path for path in found if path.endswith(endings))

    def has(self, name: str) -> bool:
        """Return whether an object is there."""
        return bool(self._files.exists(f"{self.root}/{name}"))

    def put(self, name: str, content: bytes) -> None:
        """Write an object."""
        path = f"{self.root}/{name}"
        if self.is_local:
            with replacing(Path(path)) as file:
                file.write(content)
        else:
            self._files.pipe_file(path, content)  # one request, which stores all or nothing

    def remove(self, path: str) -> None:
        """Remove an object, unless another process has removed it."""
        with suppress(FileNotFoundError):
            self._files.rm_file(path)

    def local(self, paths: Sequence[str]) -> dict[str, str]:
        """Return the local file of each object, but those that were removed elsewhere."""
        return {path: path for path in paths} if self._copies is None else self._copies.of(paths)

    def forget(self, paths: Iterable[str]) -> None:
        """Remove the copies of objects that are damaged or may change, to fetch them again."""
        if self._copies is not None:
            self._copies.forget(paths)


def find(files: fsspec.AbstractFileSystem, folder: str) -> dict[str, dict[str, Any]]:
    """Return the files below a folder with what their file system tells of them."""
    if not is_of(files, "file"):
        return dict(files.find(folder, detail=True))
    # there `find` leaves out what it cannot list, as folders that are closed for reading
    found, waiting = {}, [folder]
    while waiting:
        with suppress(FileNotFoundError):  # as the temporary folder of another writer
            for one in files.ls(waiting.pop(), detail=True):
                if one["type"] == "directory":
                    waiting.append(one["name"])
                else:
                    found[one["name"]] = one
    return found


def is_of(files: fsspec.AbstractFileSystem, protocol: str) -> bool:
    """Return whether a file system has a protocol."""
    names = files.protocol
    return protocol in ((names,) if isinstance(names, str) else names)


def without_secret(url: str) -> str:
    """Return an address without user and password."""
    return _SECRET.sub("", url)


@contextmanager
def blaming(what: str) -> Iterator[None]:
    """Turn errors of file systems, which have no common class, into one sentence."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(f"{what}: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """Return the reason that an error gives, on one line and without a password."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return without_secret(" ".join(str(text).split()))


class LocalCopies:
    """
    Copies of the objects of a store, which no other user can change.

    Without a cache they are in a temporary folder, and last as long as this.
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

    def of(self, paths: Sequence[str]) -> dict[str, str]:
        """Return the copies of objects, fetched if they are not there; those removed have none."""
        absent, removed = [path for path in paths if not self._is_there(path)], set[str]()
        for first in range(0, len(absent), _AT_A_TIME):
            some = absent[first : first + _AT_A_TIME]
            fetched = self._files.cat(some, recursive=False, on_error="return")
            with TemporaryFolder(self._all) as folder:
                for path, content in fetched.items():
                    if isinstance(content, FileNotFoundError):
                        removed.add(path)
                        continue
                    if isinstance(content, BaseException):
                        raise content
                    self._copy(path).parent.mkdir(parents=True, exist_ok=True)
                    (folder / "new").write_bytes(content)
                    (folder / "new").replace(self._copy(path))
        copies = {path: str(self._copy(path)) for path in paths if path not in removed}
        if absent:
            _remove_oldest(self._all, set(copies.values()))
        return copies

    def forget(self, paths: Iterable[str]) -> None:
        """Remove copies."""
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
