"""Readers–writer lock between processes: many share it, or one holds it alone."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_POLL_S = 0.02


class ReadersWriterLock:
    """
    Readers–writer lock of the operating system, so that a killed process releases its own.

    A process that waits to hold the lock alone goes before those that will share it. The locks are
    POSIX record locks, which a forked child does not keep.
    """

    def __init__(self, path: Path) -> None:
        """
        Lock by two files.

        Args:
            path: File of the lock, in a folder that exists; the second file is beside it.
        """
        self._path, self._entrance = path, path.with_name(f"{path.name}-entrance")

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Share the lock within the context; wait while a process holds it or waits for it."""
        with _opened(self._path) as lock:
            with _opened(self._entrance) as entrance:
                _acquire(entrance, alone=False, until=math.inf)
                _acquire(lock, alone=False, until=math.inf)
            yield

    @contextmanager
    def alone(self, timeout_s: float) -> Iterator[bool]:
        """
        Hold the lock alone within the context.

        The result is False if the others took longer than the time given, or on Windows, which has
        no such lock. Then this process holds nothing.
        """
        until = time.monotonic() + timeout_s
        with _opened(self._path) as lock:
            with _opened(self._entrance) as entrance:
                first = _acquire(entrance, alone=True, until=until)
                held = first and _acquire(lock, alone=True, until=until)
            yield held


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open a file; closing it releases the locks of this process on it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, *, alone: bool, until: float) -> bool:
    """Lock a file; return whether it is locked by then."""
    if fcntl is None:
        return False
    kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    while True:
        try:
            fcntl.lockf(descriptor, kind | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # EAGAIN or EACCES, as POSIX leaves open
            if time.monotonic() >= until:
                return False
            time.sleep(_POLL_S)
        else:
            return True
