"""A folder and child processes that are gone when this process is, even if it is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress

from pytest_tfperf.errors import PairedError
from pytest_tfperf.temporary import TemporaryFolder
from pytest_tfperf.turns import cleanup_script


class Cleanup:
    """Ends process groups and removes a folder, also if this process is killed."""

    def __init__(self) -> None:
        try:
            temporary = TemporaryFolder()
        except OSError as error:
            raise PairedError(f"no temporary folder can be created: {error}") from error
        self.folder = temporary.path
        self._groups: set[int] = set()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(cleanup_script.__file__), str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,  # Ctrl-C does not reach it
            )
        except OSError as error:
            temporary.close()
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
        for group in self._groups:
            cleanup_script.send(group, signal.SIGKILL)
        cleanup_script.remove(self.folder)
        self._process.kill()  # last, as this may be interrupted
        self._process.wait()
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.write(line)
            self._process.stdin.flush()
