"""
Jumps of the wall clock, by which TensorFlow's profiler dates its events.

A clock that is set while steps are traced gives an event another length, and all shares of the
step with it. Everything else here is timed by a clock that nobody sets.
"""

from __future__ import annotations

import time
from time import perf_counter

# The kernel slews a clock by at most 500 ppm (adjtimex(2), MAXFREQ): that is no jump.
_SLEWED = 1e-3
_LEAST_S = 1e-3
"""Least jump in seconds, above what an interruption between two readings may add."""
_READINGS = 5


class WallClock:
    """Watches the wall clock from its creation."""

    def __init__(self) -> None:
        self._began, self._offset_s = perf_counter(), _offset()

    def jump(self) -> float:
        """Return the seconds by which the clock was set since; 0 if it was not."""
        jump_s = _offset() - self._offset_s
        most_s = max(_LEAST_S, _SLEWED * (perf_counter() - self._began))
        return jump_s if abs(jump_s) > most_s else 0.0


def _offset() -> float:
    """Return the wall clock's lead over the other, by the reading that was interrupted least."""
    readings = []
    for _ in range(_READINGS):
        before = perf_counter()
        wall = time.time()
        after = perf_counter()
        readings.append((after - before, wall - (before + after) / 2))
    return min(readings)[1]
