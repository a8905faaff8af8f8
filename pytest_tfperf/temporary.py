"""Temporary folders that git ignores; what a killed process left is removed after a day."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

_NAME = re.compile(r"\.?tfperf-tmp-[a-z0-9_]{8}")
_OLD_S = 86_400.0
_SWEPT: set[Path] = set()


class TemporaryFolder:
    """
    A new folder until it is closed; OSError if it cannot be made.

    The first that a process makes beside others removes those of this user that are a day old.
    """

    def __init__(self, parent: Path | None = None) -> None:
        """
        Make the folder in `parent`, which exists, or in the system's folder for temporary files.

        There its name is not hidden, since tools leave hidden folders out.
        """
        within = Path(tempfile.gettempdir()) if parent is None else parent
        if within not in _SWEPT:
            _SWEPT.add(within)
            _sweep(within)
        prefix = f"{'' if parent is None else '.'}tfperf-tmp-"
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
        try:
            (self.path / ".gitignore").write_text("*\n", encoding="ascii")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder; what cannot be removed stays."""
        shutil.rmtree(self.path, ignore_errors=True)


def _sweep(parent: Path) -> None:
    with suppress(OSError):  # there is no such folder, or it is closed for reading
        for folder in parent.iterdir():
            if _NAME.fullmatch(folder.name):
                status = folder.lstat()
                is_own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
                if is_own and time.time() - status.st_mtime > _OLD_S:
                    shutil.rmtree(folder, ignore_errors=True)
