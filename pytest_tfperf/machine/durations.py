"""Durations that are noted while the memory of the process is watched."""

from __future__ import annotations

from array import array


class Durations:
    """
    Seconds in an array that has its length beforehand.

    A list would hold an object for each, and these would count as growth of the memory.

    Args:
        at_first: Number of durations that have room beforehand.
    """

    def __init__(self, at_first: int = 1 << 16) -> None:
        self._seconds = array("d", bytes(8 * at_first))
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def append(self, seconds: float) -> None:
        """Add a duration."""
        if self._n == len(self._seconds):
            self._seconds.frombytes(bytes(8 * self._n))
        self._seconds[self._n] = seconds
        self._n += 1

    def last(self, n: int) -> list[float]:
        """Return the last n durations, or all if there are fewer."""
        return self._seconds[max(self._n - n, 0) : self._n].tolist()
