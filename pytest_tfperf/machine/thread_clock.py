"""The time in which the running thread stood still: it neither ran nor waited for a core."""

from __future__ import annotations

import contextlib
import math
import os
from time import perf_counter, thread_time

_SCHEDSTAT = "/proc/thread-self/schedstat"
"""
Nanoseconds that the thread ran, nanoseconds that it waited for a core, and its turns
(Documentation/scheduler/sched-stats.rst of Linux).
"""


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
            self._schedstat = os.open(_SCHEDSTAT, os.O_RDONLY)

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
