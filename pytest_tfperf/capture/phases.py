"""Saying what takes long enough to wonder."""

from __future__ import annotations

from collections.abc import Callable

_LONG_S = 1.0


class Progress:
    """Announces what a profile does; `most` seconds is the longest that any of it takes."""

    def __init__(self, announce: Callable[[str], None], most: float) -> None:
        self._announce, self._most = announce, most
        self._announced = False

    def begins(self, what: str, seconds: float) -> None:
        """Something begins that takes about so long."""
        if seconds >= _LONG_S:
            self._announced = True
            self._announce(f"{what}, about {min(seconds, self._most):.0f} s")

    def over(self) -> None:
        """All of it has ended."""
        if self._announced:
            self._announced = False
            self._announce("")
