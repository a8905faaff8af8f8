"""Atomic replacement of files: other processes see the old content or the new one."""

from __future__ import annotations

import errno
import getpass
import os
import re
import secrets
import stat
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_LEFT_S = 3600.0
"""Age of a temporary file whose process must have ended."""
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")


def is_installed(path: str) -> bool:
    """Return whether a file belongs to an installed package."""
    return bool(_INSTALLED.search(path))


def installed_path(path: str) -> str | None:
    """Return the path of an installed package's file in the folder of packages, else None."""
    *_, last = (None, *_INSTALLED.finditer(path))
    return None if last is None else path[last.end() :].replace("\\", "/")


def lock_folder() -> Path:
    """Return the folder of this user's locks, outside of any project; it may not exist yet."""
    # in a container a user may have no name
    user = os.getuid() if hasattr(os, "getuid") else getpass.getuser()
    return Path(tempfile.gettempdir()) / f"tfperf-locks-{user}"


def own_lock_folder() -> Path:
    """
    Return the folder of this user's locks, which no other user can enter; make it if needed.

    If its name is taken by a link or by another user, it is a folder in this user's cache, with a
    warning: then users of one machine may measure at the same time.

    Raises:
        OSError: If it cannot be made.
    """
    folder = lock_folder()
    try:
        _make_private(folder)
    except PermissionError as error:
        folder = cache_folder() / "locks"
        folder.parent.mkdir(parents=True, exist_ok=True)
        _make_private(folder)
        warnings.warn(f"{error.strerror}; locks are in {folder} instead", stacklevel=2)
    return folder


def cache_folder() -> Path:
    """Return this program's folder in the user's cache; it may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pytest-tfperf"


def _make_private(folder: Path) -> None:
    """
    Make a folder that only this user can enter.

    Raises:
        PermissionError: If it is a link, or belongs to another user.
        OSError: If it cannot be made.
    """
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
    """
    Replace a file's content; make its folder if needed.

    Raises:
        OSError: If that fails; the file is then unchanged.
    """
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """
    Open a temporary file that replaces `path` at the end; make its folder if needed.

    Raises:
        OSError: If that fails; the file is then unchanged, as after any other error.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_left(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:  # readable as the umask says
            yield file
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _remove_left(path: Path) -> None:
    """Remove temporary files of `path` that killed processes left; no write takes that long."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}")
    for left in path.parent.iterdir():
        with suppress(OSError):
            is_left = pattern.fullmatch(left.name) and left.lstat().st_mtime < time.time() - _LEFT_S
            if is_left:
                left.unlink()
