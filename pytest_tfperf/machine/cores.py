"""CPU cores: affinity and load, and pinning and stopping of processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_PATIENCE_S, _PAUSE_S = 2.0, 0.01


def pinnable_cores() -> tuple[int, ...]:
    """Return the cores that this process may run on; empty on a system without CPU affinity."""
    if not hasattr(os, "sched_getaffinity"):
        return ()
    return tuple(sorted(os.sched_getaffinity(0)))


def usable_cores() -> tuple[int, ...]:
    """Return the cores that this process may run on, on any system."""
    return pinnable_cores() or tuple(range(os.cpu_count() or 1))


def load_average() -> float | None:
    """Return the load average of the last minute; None on a system without one."""
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None


def can_stop() -> bool:
    """Return whether SIGSTOP stops a process and SIGCONT lets it go on."""
    if not hasattr(signal, "SIGSTOP"):
        return False
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", "input()"],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        os.kill(child.pid, signal.SIGSTOP)
        stopped = _has_become(child.pid, os.WUNTRACED, os.WIFSTOPPED)
        os.kill(child.pid, signal.SIGCONT)
        return stopped and _has_become(child.pid, os.WCONTINUED, os.WIFCONTINUED)
    except OSError:
        return False
    finally:
        with suppress(OSError):
            child.kill()
        child.communicate()  # ends it too, by closing its stdin, if the kill was refused


def can_pin(cores: Sequence[int]) -> bool:
    """Return whether a process keeps to the first of these cores; there must be at least two."""
    if len(cores) < 2 or not pinnable_cores():
        return False
    try:
        with pinned(cores[:1]):
            return pinnable_cores() == tuple(cores[:1])
    except OSError:
        return False


@contextmanager
def pinned(cores: Sequence[int]) -> Iterator[None]:
    """
    Pin this thread and the processes that it starts to some cores, if any, within the context.
    """
    if not cores or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def pin_threads(pid: int, cores: Sequence[int]) -> None:
    """Pin all threads of a process, if it runs, and those that they will start, to some cores."""
    if not cores or not hasattr(os, "sched_setaffinity"):
        return
    with suppress(FileNotFoundError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)


def split_cores(least: int = 1) -> tuple[list[int], list[int]]:
    """
    Return one core for this process and all others for its children, which need `least`, or none.
    """
    cores = list(pinnable_cores())
    return (cores[:1], cores[1:]) if len(cores) > least else ([], [])


def format_cores(cores: Sequence[int]) -> str:
    """Return `core 0`, `cores 1-3` or `cores 0, 2-5`."""
    starts = [core for core in cores if core - 1 not in cores]
    ends = [core for core in cores if core + 1 not in cores]
    ranges = [
        str(start) if start == end else f"{start}-{end}"
        for start, end in zip(starts, ends, strict=True)
    ]
    return f"core{'s' * (len(cores) > 1)} {', '.join(ranges)}"


def _has_become(pid: int, option: int, is_so: Callable[[int], bool]) -> bool:
    """Return whether a child process reported a change of its state within a short while."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        changed, status = os.waitpid(pid, option | os.WNOHANG)
        if changed:
            return is_so(status)
        time.sleep(_PAUSE_S)
    return False
