"""Clocks: laps that can be paused, how long threads ran and stood still, and processor time."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from time import perf_counter, thread_time

_SCHEDSTAT = "/proc/{}/schedstat"
"""
Nanoseconds that a thread ran, nanoseconds that it waited for a core, and its turns
(Documentation/scheduler/sched-stats.rst of Linux); other systems have none.
"""


class Stopwatch:
    """A lap timer that runs from its creation."""

    def __init__(self) -> None:
        self._mark = perf_counter()

    def restart(self) -> None:
        """Begin a new lap now."""
        self._mark = perf_counter()

    def elapsed(self) -> float:
        """Return the seconds of this lap so far."""
        return perf_counter() - self._mark

    def lap(self) -> float:
        """Return the seconds of this lap, and begin a new one."""
        now = perf_counter()
        seconds, self._mark = now - self._mark, now
        return seconds

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the timer within the context."""
        start = perf_counter()
        yield
        self._mark += perf_counter() - start


class ThreadClock:
    """
    A clock of the thread that makes it.

    Elsewhere than on Linux nothing tells the time in which a thread waits for a core, which then
    counts as standing still.
    """

    def __init__(self) -> None:
        self._wall_s, self._active_s = 0.0, math.inf
        self._schedstat: int | None = None
        with contextlib.suppress(OSError):
            self._schedstat = os.open(_SCHEDSTAT.format("thread-self"), os.O_RDONLY)

    def __del__(self) -> None:
        if self._schedstat is not None:
            os.close(self._schedstat)

    def start(self, only_wall: bool = False) -> None:
        """Begin a stretch of time; `only_wall` asks for its length alone, which costs less."""
        self._active_s = math.inf if only_wall else self._active()
        self._wall_s = perf_counter()

    def stop(self) -> tuple[float, float]:
        """Return the seconds since `start`, and those of them in which the thread stood still."""
        seconds = perf_counter() - self._wall_s
        if self._active_s == math.inf:
            return seconds, 0.0
        return seconds, max(seconds - (self._active() - self._active_s), 0.0)

    def _active(self) -> float:
        """Return the seconds in which this thread has run or waited for a core."""
        if self._schedstat is None:
            return thread_time()
        return thread_time() + int(os.pread(self._schedstat, 64, 0).split()[1]) / 1e9


def children_cpu_s(process: int | str = "self", but: int | None = None) -> float | None:
    """
    Return the processor seconds so far of a process's living children but `but`, and theirs.

    `os.times` knows only children that have ended. That of a child's ended children counts with it.
    In ticks of the system (0.01 s on Linux); None where the system does not tell.
    """
    if sys.platform != "linux":
        return None
    total = 0.0
    try:
        lists = [task / "children" for task in Path(f"/proc/{process}/task").iterdir()]
        children = [child for path in lists for child in _text(path).split()]
        if not children and not lists[0].exists():  # a kernel without CONFIG_PROC_CHILDREN
            return None
        for child in children:
            if child == str(but):
                continue
            # fields 14 to 17 of proc_pid_stat(5): of the process, and of the children it waited for
            fields = _text(Path(f"/proc/{child}/stat")).rpartition(")")[2].split()
            total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
            total += children_cpu_s(child) or 0.0
    except (OSError, ValueError):
        return None
    return total


def _text(path: Path) -> str:
    """Return the text of a file, empty if its thread or process has ended."""
    try:
        return path.read_text(errors="replace")  # Linux cuts names of processes at 15 bytes
    except OSError:
        return ""


def cpu_ns(threads: Collection[int | None]) -> dict[int | None, int | None]:
    """
    Return the CPU time so far of those of these threads of Python that live, by their `ident`.

    It is None where the system does not tell: only Linux does.
    """
    alive = (one for one in threading.enumerate() if one.ident in threads)
    return {one.ident: _cpu_ns(one.native_id) for one in alive}


def any_ran(before: Mapping[int | None, int | None]) -> bool:
    """Return whether a thread ran since `cpu_ns` returned this, or may have run."""
    now = cpu_ns(before)
    return any(spent is None or now.get(thread) != spent for thread, spent in before.items())


def _cpu_ns(native_id: int | None) -> int | None:
    try:
        return int(Path(_SCHEDSTAT.format(f"self/task/{native_id}")).read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
