"""Atomic replacement of files: other processes see the old content or the new one."""

from __future__ import annotations

import errno
import getpass
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from pytest_tfperf.temporary import TemporaryFolder

_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")


def is_installed(path: str) -> bool:
    """Return whether a file belongs to an installed package."""
    return bool(_INSTALLED.search(path))


def installed_path(path: str) -> str | None:
    """Return the path of an installed package's file in the folder of packages, else None."""
    *_, last = (None, *_INSTALLED.finditer(path))
    return None if last is None else path[last.end() :].replace("\\", "/")


def lock_folder() -> Path:
    """
    Return the folder of this user's locks, which no other user can enter; make it if needed.

    Raises OSError if it cannot be made, is a link, or belongs to another user.
    """
    # in a container a user may have no name
    user = os.getuid() if hasattr(os, "getuid") else getpass.getuser()
    folder = Path(tempfile.gettempdir()) / f"tfperf-locks-{user}"
    make_private(folder)
    return folder


def cache_folder() -> Path:
    """Return this program's folder in the user's cache, made or not; RuntimeError without home."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # as the XDG Base Directory Specification has it, a relative one counts as unset
    return (base if base.is_absolute() else Path.home() / ".cache") / "pytest-tfperf"


def make_private(folder: Path) -> None:
    """Make a folder that only this user can enter; PermissionError if it is a link or another's."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not hasattr(os, "getuid"):
        return
    status = folder.lstat()
    if stat.S_ISLNK(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(errno.EPERM, f"{folder} is a link, or belongs to another user")
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, f"{folder} is not a folder")
    if status.st_mode & 0o077:
        folder.chmod(0o700)


def replace_file(path: Path, text: str) -> None:
    """Replace a file's content, and make its folder if needed; after an OSError it is unchanged."""
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` if no error comes; make its folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryFolder(path.parent) as folder:
        temporary = folder / "new"
        with on_disk(temporary) as file:
            yield file
        temporary.replace(path)


@contextmanager
def on_disk(path: Path) -> Iterator[BinaryIO]:
    """Open a new file whose content is on the disk at the end, so that a rename is safe then."""
    with path.open("xb") as file:  # readable as the umask says
        yield file
        file.flush()
        os.fsync(file.fileno())


def open_regular(path: Path) -> BinaryIO:
    """
    Open a regular file to read it, without waiting for the other end of a FIFO; OSError for others.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = os.fdopen(os.open(path, flags), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def short_path(path: Path, folder: Path) -> str:
    """Return a path for people: relative to a folder if it is below that, else as it is."""
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)
