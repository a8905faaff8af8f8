"""A folder and child processes that are gone when this process is, even if it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

from pytest_tfperf.child import cleanup_script
from pytest_tfperf.child.cleanup_script import GRACE_S
from pytest_tfperf.errors import PairedError
from pytest_tfperf.temporary import TemporaryFolder

__all__ = ["GRACE_S", "Cleanup"]


class Cleanup:
    """
    Holds a folder and process groups until it is closed; a cleanup process outlives this one.

    Raises:
        PairedError: If the folder or the cleanup process cannot be created.
    """

    def __init__(self) -> None:
        try:
            self._temporary = TemporaryFolder()
        except OSError as error:
            raise PairedError(f"no temporary folder can be created: {error}") from error
        self.folder = self._temporary.path
        self._groups: set[int] = set()
        try:
            script = str(cleanup_script.__file__)
            descriptors = (*self._temporary.opened, *self._temporary.locks)
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", script, str(self.folder), *map(str, descriptors)],
                pass_fds=descriptors,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,  # Ctrl-C does not reach it
            )
        except OSError as error:
            self._temporary.close()
            raise PairedError(f"the cleanup process cannot be started: {error}") from error

    @property
    def pid(self) -> int:
        """Process id of the cleanup process."""
        return self._process.pid

    def watch(self, group: int) -> None:
        """Add a process group that is to be ended."""
        self._groups.add(group)
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """Remove a process group that has ended."""
        self._groups.discard(group)
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """End all groups at once, and remove the folder."""
        assert self._process.stdin is not None
        self._temporary.release()  # the other process removes it
        # closing alone is not enough: a process forked from this one may hold the pipe open
        self._tell(cleanup_script.END)
        with suppress(OSError):
            self._process.stdin.close()
        if self._process.wait() != 0:
            self._kill_groups()
        self._temporary.close()

    def _kill_groups(self) -> None:
        """Do the work of the cleanup process, which was killed."""
        for group in self._groups:
            with suppress(OSError):
                os.killpg(group, signal.SIGKILL)

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.write(line)
            self._process.stdin.flush()
