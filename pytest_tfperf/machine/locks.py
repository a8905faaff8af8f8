"""
Measure one at a time: locks between processes whose windows would disturb each other.

The locks are the operating system's, on files (flock), so a killed process releases its own.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from pytest_tfperf.errors import CaptureError, warn_only
from pytest_tfperf.files import lock_folder, own_lock_folder
from pytest_tfperf.frameworks.in_use import n_gpus
from pytest_tfperf.machine.gpu_share import visible_gpus
from pytest_tfperf.machine.stopwatch import Stopwatch
from pytest_tfperf.text import elide, plain

__tracebackhide__ = True

# Often enough for windows of seconds, and rare enough not to disturb the running measurement.
_POLL_S = 0.1
_LONGEST_NAME = 100
"""Characters of a file's name before a digest; file systems allow 255 bytes."""
PATIENCE_S = 600.0
"""Longest wait for another process by default, in seconds."""

Exclusive = Callable[..., AbstractContextManager[bool]]
"""Takes the arguments of `measuring_alone`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockWords:
    """The use of a lock, as messages name it."""

    awaited: str
    """What a process waits for, after `waiting until`."""
    taken: str
    """What another process has done for too long."""
    advice: str
    """Why this process cannot do it too, and what helps."""


_MEASURING = LockWords(
    awaited="another test of this machine is measured",
    taken="has measured",
    advice="this one must not measure beside it: wait for its end, or stop it "
    "(ini tfperf_lock_timeout)",
)


@contextmanager
def measuring_alone(
    announce: Callable[[str], None], *timers: Stopwatch, patience_s: float = PATIENCE_S
) -> Iterator[bool]:
    """
    Keep other processes of this user from measuring on this process's devices within the context.

    The result is True if this process had to wait.

    Args:
        announce: Receives a text while it waits, and an empty text afterwards.
        timers: Timers to pause while it waits.
        patience_s: Longest wait in seconds.

    Raises:
        CaptureError: If no lock can be created, or another process holds one for too long.
    """
    names = device_names(n_gpus(), visible_gpus())
    with held(names, announce, *timers, patience_s=patience_s) as waited:
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
    words: LockWords = _MEASURING,
) -> Iterator[bool]:
    """
    Hold the locks of these names within the context; the result is True if it had to wait.

    Args:
        names: Names of the locks.
        announce: Receives a text while it waits, and an empty text afterwards.
        timers: Timers to pause while it waits.
        patience_s: Longest wait for each lock in seconds.
        words: Use of the locks in messages.

    Raises:
        CaptureError: If no lock can be created, or another process holds one for too long.
    """
    with ExitStack() as locks:
        with ExitStack() as pauses:
            for timer in timers:
                pauses.enter_context(timer.paused())
            waited = [_acquire(locks, name, announce, patience_s, words) for name in names]
        yield any(waited)


def device_names(n_used: int, visible: Sequence[str]) -> tuple[str, ...]:
    """
    Return the names of the locks of a process's devices, in an order that prevents deadlocks.

    Args:
        n_used: Number of GPUs that the process uses.
        visible: Visible GPUs.
    """
    gpus = visible or tuple(map(str, range(n_used)))
    return tuple(sorted(f"gpu-{gpu}" for gpu in gpus[:n_used])) or ("cpu",)


def lock_file(name: str) -> Path:
    """Return the path of a device's lock on this host."""
    file = re.sub(r"[^\w.-]+", "_", f"{platform.node()}-{name}", flags=re.ASCII)
    if len(file) > _LONGEST_NAME:
        file = f"{file[:_LONGEST_NAME]}-{hashlib.sha256(file.encode()).hexdigest()[:16]}"
    return lock_folder() / file


def _acquire(
    locks: ExitStack,
    name: str,
    announce: Callable[[str], None],
    patience_s: float,
    words: LockWords,
) -> bool:
    """
    Take a lock that the stack releases; return whether this had to wait.

    Args:
        locks: Releases the lock.
        name: Name of the lock.
        announce: Receives a text while it waits, and an empty text afterwards.
        patience_s: Longest wait in seconds.
        words: Use of the lock in messages.
    """
    try:
        path = own_lock_folder() / lock_file(name).name
        # A loop may end in another thread than it began in.
        lock = FileLock(path, thread_local=False, mode=0o600)
        holder = path.with_name(f"{path.name}.holder")
        try:
            lock.acquire(timeout=0)
            waited = False
        except Timeout:
            by = _named(holder)
            announce(f"waiting until {words.awaited}{by}")
            try:
                lock.acquire(timeout=patience_s, poll_interval=_POLL_S)
            except Timeout:
                raise CaptureError(
                    f"another process{by} {words.taken} for {patience_s:.0f} s, and {words.advice}"
                ) from None  # a hundred lines of filelock would hide the message
            finally:
                announce("")
            waited = True
    except (OSError, NotImplementedError) as error:
        raise CaptureError(
            "no lock that keeps other tests from measuring at the same time, in "
            f"{lock_folder()}: {error}"
        ) from error
    locks.callback(lock.release)
    _sign(holder)
    return waited


def _sign(holder: Path) -> None:
    """Write this process into the file that names a lock's holder: a few bytes, for messages."""
    try:
        holder.write_text(str(os.getpid()), encoding="ascii")
    except OSError as error:
        warn_only(
            f"tfperf: others that wait for this process cannot name it: {holder}: {error.strerror}"
        )


def _named(holder: Path) -> str:
    """Name the process that holds a lock, as far as it is known: ` (process 123: pytest tests)`."""
    try:
        pid = int(holder.read_text(encoding="ascii"))
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except (OSError, ValueError):
        return ""
    shown = " ".join(plain(command.decode(errors="replace")).split())
    return f" (process {pid}: {elide(shown, 80)})"
