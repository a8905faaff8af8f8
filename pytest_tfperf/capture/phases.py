"""Announce phases that take longer than a second."""

from __future__ import annotations

from collections.abc import Callable

_LONG_S = 1.0


class Progress:
    """
    Announcements of the phases of a profile.

    Args:
        announce: Receives a text for each long phase, and an empty text at the end.
        most_s: Upper bound of any phase, in seconds.
    """

    def __init__(self, announce: Callable[[str], None], most_s: float) -> None:
        self._announce, self._most_s = announce, most_s
        self._announced = False

    def begin(self, phase: str, seconds: float) -> None:
        """Announce a phase and its expected time, if it is long."""
        if seconds >= _LONG_S:
            self._announced = True
            self._announce(f"{phase}, about {min(seconds, self._most_s):.0f} s")

    def end(self) -> None:
        """Clear the last announcement."""
        if self._announced:
            self._announced = False
            self._announce("")
