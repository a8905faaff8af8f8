"""Functions that the windows of a profile call."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from pytest_tfperf.capture.sessions import ReadTraces
from pytest_tfperf.machine.locks import Exclusive
from pytest_tfperf.recording import Fetches
from pytest_tfperf.stats.slope import FEWEST
from pytest_tfperf.turn import TurnClient

_LONG_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowHooks:
    """Functions that the windows call, and the announcement of long phases."""

    settling_steps: Callable[[ReadTraces, int, Fetches | None], int]
    """
    Returns the number of steps to wait before the windows are measured again, 0 if not needed.

    Takes the traces, the number of steps since the last pause, in which input buffers drained, and
    the fetches of the timed window.
    """
    announce: Callable[[str], None]
    """Receives a text for each long phase, and an empty text at the end."""
    exclusive: Exclusive
    """Keeps other processes from measuring at the same time."""
    turn_client: TurnClient | None = None
    """Takes turns with other processes."""
    most_retraces: float = math.inf
    """Largest number of retraces that no limit forbids."""
    most_compiles: float = math.inf
    """Same of compilations by XLA."""
    most_growth: float = math.inf
    """Largest growth of the memory that no limit forbids, in bytes a step."""

    @property
    def fewest_samples(self) -> int:
        """Samples of the memory that decide a limit on its growth; the first is left out."""
        return FEWEST + 1 if self.most_growth < math.inf else 0


class Progress:
    """
    Announcements of the phases of a profile, each of `most_s` at most; an empty text ends one.
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
