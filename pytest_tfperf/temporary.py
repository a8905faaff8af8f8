"""
Temporary folders that git ignores, and that a later run removes if this process is killed.

Each holds a `.gitignore` for all that is in it, on which its processes keep a lock (flock). The
lock ends with its last process, also in another container or after a restart. A process id could
not tell that: it is used again, and each container has its own. A folder, and not a `.gitignore`
beside the files that it is for, because that folder may be the user's own.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from pytest_tfperf.removal import clear

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MARK = ".gitignore"
_NAME = re.compile(r"\.?tfperf-tmp-[0-9a-f]{8}")
_SEEN: set[Path] = set()
_OLD_S = 86_400.0
"""Age of a folder whose process must have ended, where the file system has no locks: a day."""


class TemporaryFolder:
    """
    A new folder until it is closed; making it removes those that killed processes left beside it.

    Raises:
        OSError: If it cannot be made.
    """

    def __init__(self, parent: Path | None = None, crowded: bool = False) -> None:
        """
        Make the folder.

        Args:
            parent: An existing folder, on whose file system it is; by default the system's for
                temporary files. There its name is not hidden, since tools leave hidden folders out.
            crowded: True if the parent may hold thousands of folders of others, as the system's
                does. A process looks there once for what was left.
        """
        within = Path(tempfile.gettempdir()) if parent is None else parent
        made = None
        while made is None:
            self.path = within / f"{'' if parent is None else '.'}tfperf-tmp-{os.urandom(4).hex()}"
            self.path.mkdir(mode=0o700)
            made = _marked(self.path)
        self._mark, self._folder = made
        if within not in _SEEN:
            remove_left(within)
        if parent is None or crowded:
            _SEEN.add(within)

    @property
    def locks(self) -> tuple[int, ...]:
        """The descriptor by which a child process keeps the folder too; none on Windows."""
        return (self._mark,) if fcntl is not None and self._mark >= 0 else ()

    @property
    def opened(self) -> tuple[int, ...]:
        """The descriptor by which a child process removes this folder only; none on Windows."""
        return () if self._folder is None else (self._folder,)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()

    def release(self) -> None:
        """Leave the folder to another process, which has locked it."""
        mark, self._mark = self._mark, -1
        if mark >= 0:
            os.close(mark)

    def close(self) -> None:
        """Remove the folder, if it is still there and the one that was made."""
        is_made = self._is_made()
        if is_made:
            _clear(self.path, self._folder)
        self.release()  # first: network file systems keep what is removed while it is open
        if is_made:
            _remove_cleared(self.path)
        folder, self._folder = self._folder, None
        if folder is not None:
            os.close(folder)

    def _is_made(self) -> bool:
        with suppress(OSError):
            status = self.path.lstat()
            if fcntl is None:
                return True
            return self._folder is not None and os.path.samestat(status, os.fstat(self._folder))
        return False


def _marked(folder: Path) -> tuple[int, int | None] | None:
    """
    Open and mark a new folder, and lock it.

    Returns:
        Descriptors of mark and folder, which removing it then needs no more; None if another
        process has taken it for one that was left.
    """
    opened, mark = None, None
    try:
        opened = _open_folder(folder)
        mark = _opened_unnamed(folder)
        if mark is None:
            mark = os.open(folder / MARK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(mark, b"*\n")
        _lock(mark, alone=False)
        (folder / MARK).stat()
    except BaseException as error:
        for descriptor in (mark, opened):
            if descriptor is not None:
                os.close(descriptor)
        _remove_cleared(folder)
        if isinstance(error, (BlockingIOError, FileNotFoundError)):
            return None
        raise
    return mark, opened


def _opened_unnamed(folder: Path) -> int | None:
    """
    Make the mark as a file without a name, write it, and name it: git never sees an empty one.

    The result is None where the system or the file system has no such files.
    """
    try:
        mark = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    except (AttributeError, OSError):
        return None
    try:
        os.write(mark, b"*\n")
        # as open(2) has it; Python calls linkat(2) if src_dir_fd is given, which this path ignores
        os.link(f"/proc/self/fd/{mark}", folder / MARK, src_dir_fd=mark, follow_symlinks=True)
    except OSError:
        os.close(mark)
        return None
    return mark


def _lock(mark: int, alone: bool) -> bool:
    """
    Lock an open file without waiting; return False on a file system that has no locks.

    Raises:
        BlockingIOError: If a process holds it.
    """
    if fcntl is None:
        return False
    try:
        fcntl.flock(mark, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def remove_left(parent: Path) -> None:
    """Remove the temporary folders in a folder that are this user's, and whose processes ended."""
    with suppress(OSError):  # there is no such folder, or it is closed for reading
        for left in parent.iterdir():
            if _NAME.fullmatch(left.name):
                with suppress(OSError):  # it is in use, another's, or gone
                    _remove_if_left(left)


def _remove_if_left(folder: Path) -> None:
    opened = _open_folder(folder)
    try:
        status = folder.lstat() if opened is None else os.fstat(opened)
        is_own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
        if not (stat.S_ISDIR(status.st_mode) and is_own):
            return
        is_old = time.time() - status.st_mtime > _OLD_S
        try:
            mark = _opened_mark(folder, opened)
        except FileNotFoundError:
            folder.rmdir()  # if it is empty; a process that is about to mark it makes another
            return
        try:
            if not (_lock(mark, alone=True) or is_old):
                return
            _clear(folder, opened)
            if fcntl is not None:
                _remove_cleared(folder)  # with the lock, so that nobody begins to use it
        finally:
            os.close(mark)
    finally:
        if opened is not None:
            os.close(opened)
    _remove_cleared(folder)  # network file systems keep what is open; Windows refuses to remove it


def _open_folder(folder: Path) -> int | None:
    """
    Open a folder and no link to one, so that nobody can exchange it; None on Windows.

    Raises:
        OSError: If it is not there, or a link.
    """
    if fcntl is None:
        return None
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _opened_mark(folder: Path, opened: int | None) -> int:
    if opened is None:
        return os.open(folder / MARK, os.O_RDWR)
    return os.open(MARK, os.O_RDWR | os.O_NOFOLLOW, dir_fd=opened)


def _clear(folder: Path, opened: int | None) -> None:
    """Remove all but the mark, so that git ignores the rest to the end."""
    with suppress(OSError):
        if opened is not None:
            clear(opened, kept=MARK)
            return
        for entry in folder.iterdir():
            if entry.name != MARK:
                with suppress(OSError):
                    _remove_by_path(entry)


def _remove_by_path(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink()


def _remove_cleared(folder: Path) -> None:
    """Remove a folder that holds its mark alone; what is not cleared is left to a later run."""
    with suppress(OSError):
        if all(entry.name == MARK for entry in folder.iterdir()):
            (folder / MARK).unlink(missing_ok=True)
            folder.rmdir()
