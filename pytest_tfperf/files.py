"""Files written as a whole: another process sees the old content or the new one, never half of it."""

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


def lock_folder() -> Path:
    """Where this user's locks are, so that they lie among nobody's files; the folder may not be there yet."""
    user = (
        os.getuid() if hasattr(os, "getuid") else getpass.getuser()
    )  # in a container a user may have no name
    return Path(tempfile.gettempdir()) / f"tfperf-locks-{user}"


def replace_file(path: Path, text: str) -> None:
    """
    Give a file this content, making its folder where there is none.

    Raises:
        OSError: If that cannot be done; the file is then as it was.
    """
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """
    Return a file to write to that takes the place of `path` when all is written, making its folder where there is none.

    Raises:
        OSError: If that cannot be done; the file is then as it was, as it is after any other error.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:  # readable to those whom the umask lets
            yield file
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
