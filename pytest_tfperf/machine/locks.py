"""
Measure one at a time: locks between processes whose windows would disturb each other.

The locks are the operating system's, on files, so a killed process releases its own.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from time import perf_counter

from filelock import FileLock, Timeout

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.files import lock_folder
from pytest_tfperf.machine.clocks import Stopwatch
from pytest_tfperf.machine.gpu_share import visible_gpus

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__tracebackhide__ = True

# Often enough for windows of seconds, and rare enough not to disturb the running measurement.
_POLL_S = 0.1
_TURN_S = 0.02  # between two looks whether other workers have ended their test
PATIENCE_S = 600.0
"""Longest wait for another process by default, in seconds."""

Exclusive = Callable[..., AbstractContextManager[bool]]
"""Takes the arguments of `measuring_alone`."""


@contextmanager
def measuring_alone(
    announce: Callable[[str], None],
    *timers: Stopwatch,
    patience_s: float = PATIENCE_S,
    waits_s: list[float] | None = None,
) -> Iterator[bool]:
    """
    Keep other processes of this user from measuring on this process's devices within the context.

    The result is True if this process had to wait. Meanwhile `announce` has a text, which an empty
    one ends, and `timers` are paused; `waits_s` receives the seconds of each wait. Raises
    CaptureError if no lock can be created, or one is held for longer than `patience_s`.
    """
    # loads NumPy, which commands that lock files alone do without
    from pytest_tfperf.frameworks.in_use import n_gpus

    names = device_names(n_gpus(), visible_gpus())
    advice = "wait for its end, or stop it (ini tfperf_lock_timeout)"
    with held(
        names, announce, *timers, patience_s=patience_s, advice=advice, waits_s=waits_s
    ) as waited:
        yield waited


@contextmanager
def measuring_anyway(announce: Callable[[str], None], *timers: Stopwatch) -> Iterator[bool]:  # noqa: ARG001
    """No-op counterpart of `measuring_alone` for processes whose parent holds the lock."""
    yield False


@contextmanager
def held(
    names: Sequence[str],
    announce: Callable[[str], None],
    *timers: Stopwatch,
    patience_s: float = PATIENCE_S,
    awaited: str = "another test of this machine is measured",
    advice: str = "wait for its end, or stop it",
    waits_s: list[float] | None = None,
) -> Iterator[bool]:
    """
    Hold the locks of these names within the context; the result is True if it had to wait.

    Names are in one order for all processes. `awaited` is what another process does with the lock,
    after `waiting until`. The other arguments, and errors, are as in `measuring_alone`.
    """
    with ExitStack() as locks:
        with ExitStack() as pauses:
            for timer in timers:
                pauses.enter_context(timer.paused())
            waited = False
            for name in names:
                try:
                    path = lock_file(name)
                    # A loop may end in another thread than it began in.
                    lock = FileLock(path, thread_local=False)
                    holder = path.with_name(f"{path.name}.holder")
                    try:
                        lock.acquire(timeout=0)
                    except Timeout:
                        waited, began = True, perf_counter()
                        until = f"until {awaited}{_named(holder)}"
                        announce(f"waiting {until}")
                        try:
                            lock.acquire(timeout=patience_s, poll_interval=_POLL_S)
                        except Timeout:
                            raise CaptureError(
                                f"waited {patience_s:.0f} s {until}: {advice}"
                            ) from None  # a hundred lines of filelock would hide the message
                        finally:
                            announce("")
                            if waits_s is not None:
                                waits_s.append(perf_counter() - began)
                except (OSError, NotImplementedError) as error:
                    why = getattr(error, "strerror", None) or error
                    raise CaptureError(
                        f"no lock in {tempfile.gettempdir()}: {why}; TMPDIR names another folder"
                    ) from error
                locks.callback(lock.release)
                with suppress(OSError):
                    holder.write_text(str(os.getpid()), encoding="ascii")
        yield waited


def device_names(n_used: int, visible: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the locks of a process's devices, in an order that prevents deadlocks."""
    gpus = visible or tuple(map(str, range(n_used)))
    return tuple(sorted(f"gpu-{gpu}" for gpu in gpus[:n_used])) or ("cpu",)


def lock_file(name: str) -> Path:
    """Return the path of a lock on this host; OSError if this user can have no folder of locks."""
    whole = f"{platform.node()}-{name}"
    readable = re.sub(r"[^\w.-]+", "_", whole, flags=re.ASCII)[:100]
    return lock_folder() / f"{readable}-{hashlib.sha256(whole.encode()).hexdigest()[:16]}"


def _named(holder: Path) -> str:
    try:
        return f" (process {int(holder.read_text(encoding='ascii'))})"
    except (OSError, ValueError):
        return ""


class ReadersWriterLock:
    """
    Readers–writer lock of the operating system, so that a killed process releases its own.

    A process that waits to hold the lock alone goes before those that will share it. The locks are
    POSIX record locks, which a forked child does not keep.
    """

    def __init__(self, path: Path) -> None:
        """Lock by a file, in a folder that exists, and a second one beside it."""
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
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
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
            time.sleep(_TURN_S)
        else:
            return True
