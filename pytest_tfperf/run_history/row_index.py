"""
Local index of a store, in the user's cache: the rows of all objects that were read so far.

To open thousands of small files takes longer than any query, and objects never change. So each is
read once. A query that finds new objects, or misses removed ones, changes a copy of the index,
which then replaces it. Readers need no lock, and a killed process leaves the old index.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout

from pytest_tfperf.files import cache_folder, make_private
from pytest_tfperf.run_history.index_tables import (
    Fetch,
    OpenIndex,
    Query,
    UnusableIndexError,
    blaming_index,
)
from pytest_tfperf.run_history.rows import ROW_FORMAT
from pytest_tfperf.temporary import TemporaryFolder

T = TypeVar("T")
_FORMAT = 1
"""Version of the tables; another version of this package does not see the file."""
_ENDING = ".duckdb"
_MOST_BYTES = 1 << 30
"""Bytes of an index that is kept; a million rows take 15 to 50 MB."""
_MOST_STORES = 8
"""Indexes that are kept, those used last."""
_WAIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Objects of a store at the time of a query."""

    folder: str
    """Folder that was listed, with a slash at its end."""
    paths: frozenset[str]
    """All objects below it."""
    projects: Mapping[str, str | None]
    """Objects that are asked for, each with the project that its path names."""

    def new(self, known: Mapping[str, int]) -> dict[str, str | None]:
        """Return the objects that are asked for and not known, with their projects."""
        return {path: name for path, name in self.projects.items() if path not in known}

    def gone(self, known: Mapping[str, int]) -> list[str]:
        """Return the known objects that are no longer there."""
        below = (path for path in known if path.startswith(self.folder))
        return [path for path in below if path not in self.paths]


class RowIndex:
    """
    The index of a store.

    Args:
        address: Address of the store, by which indexes are kept apart.
        fetch: Fetches objects; None for those that are local files.
    """

    def __init__(self, address: str, fetch: Fetch | None) -> None:
        key = json.dumps([_FORMAT, ROW_FORMAT, address])
        self._name, self._fetch = hashlib.sha256(key.encode()).hexdigest()[:32], fetch

    def ask(self, listing: Listing, query: Query[T]) -> tuple[T, tuple[str, ...]]:
        """
        Answer a query on the rows of the objects that are asked for.

        Where the cache cannot be used, the index is in a temporary folder for this one query.

        Returns:
            The answer, and a sentence for each damaged object.

        Raises:
            UnusableIndexError: If there is no room for an index anywhere.
        """
        place = self._place(listing)
        try:
            return self._ask(listing, query, place, place)
        except UnusableIndexError:
            start = place if place is not None and _is_sound(place) else None
            return self._ask(listing, query, start, None)

    def _place(self, listing: Listing) -> Path | None:
        """Return the place of the index; None where nothing is to be kept, or there is no cache."""
        folder = _own_folder()
        if folder is None:
            return None
        place = folder / f"{self._name}{_ENDING}"
        # without objects and an index, a lock would be all that stays
        return place if listing.projects or place.exists() else None

    def _ask(
        self, listing: Listing, query: Query[T], start: Path | None, place: Path | None
    ) -> tuple[T, tuple[str, ...]]:
        """
        Answer a query.

        Args:
            listing: The objects.
            query: The query.
            start: The index so far, if there is one.
            place: Place of a new one; None for a temporary folder.
        """
        with ExitStack() as stack:
            answer = _answer(listing, query, start)
            if answer is None and place is not None:
                stack.enter_context(_turn(place))
                # another process may have read them meanwhile
                answer = _answer(listing, query, start)
            return answer or self._answer_anew(listing, query, start, place)

    def _answer_anew(
        self, listing: Listing, query: Query[T], start: Path | None, place: Path | None
    ) -> tuple[T, tuple[str, ...]]:
        """Change a copy of the index and ask that: see `_ask`."""
        with _workspace(place) as workspace:
            file = workspace / f"new{_ENDING}"
            if start is not None and _can_be_used(start):
                with blaming_index():
                    shutil.copyfile(start, file)
            with closing(OpenIndex(file, writes=True)) as index:
                before = set(index.objects)
                index.drop(listing.gone(index.objects))
                unread = index.add(listing.new(index.objects), workspace, self._fetch)
                index.save()
                is_other = before != set(index.objects)
            try:
                with closing(OpenIndex(file)) as index:
                    return index.ask(listing.projects, query), unread
            finally:
                if is_other and place is not None:
                    _publish(file, place)


def _answer(
    listing: Listing, query: Query[T], file: Path | None
) -> tuple[T, tuple[str, ...]] | None:
    """
    Answer a query from an index; None if it lacks objects or has removed ones.

    Args:
        listing: The objects.
        query: The query.
        file: The index.
    """
    if file is None or not _can_be_used(file):
        return None
    with closing(OpenIndex(file)) as index:
        if listing.new(index.objects) or listing.gone(index.objects):
            return None
        with suppress(OSError):
            os.utime(file)  # those that are used last are kept
        return index.ask(listing.projects, query), ()


def _own_folder() -> Path | None:
    """Return the folder of this user's indexes, which no other user can enter; None without one."""
    try:
        folder = cache_folder() / "history"
        folder.parent.mkdir(parents=True, exist_ok=True)
        make_private(folder)
    except (OSError, RuntimeError):  # as without a home
        return None
    return folder


def _can_be_used(file: Path) -> bool:
    """Return whether a file is there, is no link, and is this user's alone."""
    try:
        status = file.lstat()
    except OSError:
        return False
    is_own = not hasattr(os, "getuid") or (
        status.st_uid == os.getuid() and not status.st_mode & 0o077
    )
    return stat.S_ISREG(status.st_mode) and is_own


def _is_sound(file: Path) -> bool:
    """Return whether an index can be read; remove one that cannot."""
    try:
        if _can_be_used(file):
            with closing(OpenIndex(file)) as index:
                index.verify()
            return True
    except UnusableIndexError:
        with suppress(OSError):
            file.unlink()
    return False


@contextmanager
def _turn(place: Path) -> Iterator[None]:
    """
    Wait while another process makes the same index, so that one of them reads the objects.

    The wait is bounded. Without a lock both read them, and the last one's index stays.
    """
    lock = FileLock(place.with_suffix(".lock"), timeout=_WAIT_S, mode=0o600)
    with suppress(Timeout, OSError, NotImplementedError):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _workspace(place: Path | None) -> Iterator[Path]:
    """Make a private folder on the file system of an index, or the system's for temporary files."""
    with blaming_index():
        folder = TemporaryFolder(None if place is None else place.parent)
    with folder as path:
        yield path


def _publish(file: Path, place: Path) -> None:
    """Move an index to its place, unless it is too large; keep those of the last stores only."""
    with suppress(OSError):
        if file.stat().st_size <= _MOST_BYTES:
            file.chmod(0o600)
            file.replace(place)
        others = sorted(place.parent.glob(f"*{_ENDING}"), key=lambda one: one.lstat().st_mtime)
        for old in others[:-_MOST_STORES]:
            old.unlink()
            old.with_suffix(".lock").unlink(missing_ok=True)
