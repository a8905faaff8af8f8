"""Give a run an exit status that its crash cannot change: a parent process waits for it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import warnings
from contextlib import suppress

UNTESTABLE = 125
"""
The status of a commit that cannot be tested.

Source: git-bisect(1), "bisect run": above 127, it stops.
"""
_SET_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2), Linux."""
_GUARDED = "TFPERF_GUARDED"
"""Environment variable of a guarded process, and of all that it starts."""


class ExitGuard:
    """
    The guarded process's connection to its parent.

    Args:
        fd: File descriptor that the parent reads; None where nobody waits.
    """

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def end_with(self, status: int) -> None:
        """Name the status that the parent ends with, however this process ends."""
        if self._fd is not None:
            os.write(self._fd, bytes([status]))


def guarded() -> ExitGuard | None:
    """
    Fork: the child goes on, and this process ends with the status that the child names.

    If the child ends without one, as by a crash, a broken conftest.py or a wrong option, the status
    is `UNTESTABLE`.

    Returns:
        The connection in the child; None in a process that a guarded one has started.
    """
    if _GUARDED in os.environ:
        return None
    os.environ[_GUARDED] = "1"
    if not hasattr(os, "fork"):
        return ExitGuard(None)
    reader, writer = os.pipe()
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no thread of another plugin holds a lock of this one
        child = os.fork()
    if child == 0:
        os.close(reader)
        _end_with(parent)
        return ExitGuard(writer)
    os.close(writer)
    os._exit(_awaited(child, reader))


def _end_with(parent: int) -> None:
    """End this process if its parent is killed, where the system can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() != parent:  # it was killed before
            os.kill(os.getpid(), signal.SIGTERM)


def _awaited(child: int, reader: int) -> int:
    """Wait for the child, and return the status that it named."""

    def forward(number: int, _: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, forward)
    _, code = os.waitpid(child, 0)
    os.set_blocking(reader, False)  # what the child has started may hold the other end
    with suppress(BlockingIOError):
        if named := os.read(reader, 1):
            return named[0]
    ended = os.waitstatus_to_exitcode(code)
    how = f"exit status {ended}" if ended >= 0 else signal.Signals(-ended).name
    os.write(2, f"tfperf: pytest ended with {how}: status {UNTESTABLE} for git bisect\n".encode())
    return UNTESTABLE
