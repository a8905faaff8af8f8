"""A lap timer that can be paused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


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

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the timer within the context."""
        start = perf_counter()
        yield
        self._mark += perf_counter() - start
