"""
One measurement at a time: processes whose windows would disturb each other take turns.

The locks are the operating system's on files (flock), so that a process that is killed leaves none.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from pytest_tfperf.errors import CaptureError
from pytest_tfperf.files import lock_folder
from pytest_tfperf.machine.gpu_share import visible_gpus
from pytest_tfperf.machine.stopwatch import Stopwatch
from pytest_tfperf.tf_runtime import n_gpus

__tracebackhide__ = True

_POLL_S = 0.1  # often enough for windows of seconds, and seldom enough for those that are measured meanwhile

Exclusive = Callable[..., AbstractContextManager[bool]]
"""Called as `measuring_alone` is."""


@contextmanager
def measuring_alone(announce: Callable[[str], None], *timers: Stopwatch) -> Iterator[bool]:
    """
    Within the context no other process of this user measures on the devices of this one; gives whether that was waited for.

    The waiting is nobody's time: the timers stand still.

    Raises:
        CaptureError: If there can be no lock.
    """
    with held(device_names(n_gpus(), visible_gpus()), announce, *timers) as waited:
        yield waited


@contextmanager
def measuring_anyway(announce: Callable[[str], None], *timers: Stopwatch) -> Iterator[bool]:  # noqa: ARG001
    """As `measuring_alone` where somebody else sees to it."""
    yield False


@contextmanager
def held(
    names: Sequence[str], announce: Callable[[str], None], *timers: Stopwatch
) -> Iterator[bool]:
    """Within the context the locks of these names are held; gives whether that was waited for. Raises: as `measuring_alone`."""
    with ExitStack() as locks:
        with ExitStack() as pauses:
            for timer in timers:
                pauses.enter_context(timer.paused())
            waited = [_acquire(locks, name, announce) for name in names]
        yield any(waited)


def device_names(n_used: int, visible: Sequence[str]) -> tuple[str, ...]:
    """
    What a process that has so many of the visible GPUs computes on, as the names of its locks.

    They are in one order, so that no two processes wait for each other.
    """
    gpus = visible or tuple(map(str, range(n_used)))
    return tuple(sorted(f"gpu-{gpu}" for gpu in gpus[:n_used])) or ("cpu",)


def lock_file(name: str) -> Path:
    """Where the lock of a device of this host is."""
    return lock_folder() / re.sub(r"[^\w.-]+", "_", f"{platform.node()}-{name}")


def _acquire(locks: ExitStack, name: str, announce: Callable[[str], None]) -> bool:
    """Take a lock, which the stack gives back; whether that had to be waited for."""
    try:
        path = lock_file(name)
        path.parent.mkdir(exist_ok=True)
        lock = FileLock(
            path, thread_local=False
        )  # a loop may end in another thread than it began in
        try:
            lock.acquire(timeout=0)
            waited = False
        except Timeout:
            announce("waiting until another test of this machine is measured")
            try:
                lock.acquire(poll_interval=_POLL_S)
            finally:
                announce("")
            waited = True
    except (OSError, NotImplementedError) as error:
        raise CaptureError(
            f"no lock that keeps other tests from measuring at the same time, in {lock_folder()}: {error}"
        ) from error
    locks.callback(lock.release)
    return waited
