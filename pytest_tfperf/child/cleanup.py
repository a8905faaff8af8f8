"""A folder and processes that are gone when this process is, even if it is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from pytest_tfperf.child import cleanup_script
from pytest_tfperf.errors import PairedError


class Janitor:
    """
    Holds a folder, and the process groups that work for this process, until it is closed; `janitor` is the process that waits.

    Raises:
        PairedError: If there can be no folder or no such process.
    """

    def __init__(self) -> None:
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="tfperf-paired-"))
        except OSError as error:
            raise PairedError(f"there can be no temporary folder: {error}") from error
        self._groups: set[int] = set()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(cleanup_script.__file__), str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,  # out of the reach of Ctrl-C
            )
        except OSError as error:
            self.folder.rmdir()
            raise PairedError(f"the process that cleans up cannot be started: {error}") from error

    def watch(self, group: int) -> None:
        """Kill this process group when all ends."""
        self._groups.add(group)
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """It has ended."""
        self._groups.discard(group)
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """End all now."""
        assert self._process.stdin is not None
        self._tell(
            cleanup_script.END
        )  # a process that was forked from this one may hold the other end, and keep it open
        with suppress(OSError):
            self._process.stdin.close()
        if self._process.wait() != 0:
            self._do_its_work()

    def _do_its_work(self) -> None:
        """What the process that waits would have done, had nobody killed it."""
        for group in self._groups:
            with suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.write(line)
            self._process.stdin.flush()
