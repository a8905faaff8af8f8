"""Atomic replacement of files: other processes see the old content or the new one."""

from __future__ import annotations

import getpass
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

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
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:  # readable as the umask says
            yield file
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
