"""Whether processes can be stopped and pinned here, as turns want it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

_PATIENCE_S, _PAUSE_S = 2.0, 0.01


def can_stop() -> bool:
    """Whether SIGSTOP stops a process and SIGCONT lets it go on."""
    if not hasattr(signal, "SIGSTOP"):
        return False
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", "input()"],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        os.kill(child.pid, signal.SIGSTOP)
        stopped = _became(child.pid, os.WUNTRACED, os.WIFSTOPPED)
        os.kill(child.pid, signal.SIGCONT)
        return stopped and _became(child.pid, os.WCONTINUED, os.WIFCONTINUED)
    except OSError:
        return False
    finally:
        with suppress(OSError):
            child.kill()
        child.communicate()  # which ends it too, if it was not to be killed


def can_pin(cores: Sequence[int]) -> bool:
    """Whether a process can be held to some of these cores: there are at least two, and the system does as it is told."""
    if len(cores) < 2 or not hasattr(os, "sched_getaffinity"):
        return False
    try:
        with pinned(cores[:1]):
            return os.sched_getaffinity(0) == set(cores[:1])
    except OSError:
        return False


def _became(pid: int, option: int, is_so: Callable[[int], bool]) -> bool:
    """Whether the child reported this change of its state within a short while."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        changed, status = os.waitpid(pid, option | os.WNOHANG)
        if changed:
            return is_so(status)
        time.sleep(_PAUSE_S)
    return False


@contextmanager
def pinned(cores: Sequence[int]) -> Iterator[None]:
    """Within the context this thread runs on these cores alone, and so do the processes that it starts; no cores: on any."""
    if not cores or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def split_cores(least: int = 1) -> tuple[list[int], list[int]]:
    """One core for the referee and all others for its sides; none for either where fewer than so many would be left to them."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return (cores[:1], cores[1:]) if len(cores) > least else ([], [])


def ranges(cores: Sequence[int]) -> str:
    """`0`, `1-3`, `0, 2-5`."""
    starts = [core for core in cores if core - 1 not in cores]
    ends = [core for core in cores if core + 1 not in cores]
    return ", ".join(
        str(start) if start == end else f"{start}-{end}"
        for start, end in zip(starts, ends, strict=True)
    )
