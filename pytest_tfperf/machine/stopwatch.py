"""A stopwatch that gives laps, and stands still while what is done is nobody's time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter


class Stopwatch:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._mark = perf_counter()

    def restart(self) -> None:
        """Begin a new lap here."""
        self._mark = perf_counter()

    def elapsed(self) -> float:
        """Seconds of this lap so far."""
        return perf_counter() - self._mark

    def lap(self) -> float:
        """Seconds of this lap; a new one begins."""
        now = perf_counter()
        seconds, self._mark = now - self._mark, now
        return seconds

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What is done within belongs to no lap."""
        start = perf_counter()
        yield
        self._mark += perf_counter() - start
