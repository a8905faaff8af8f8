"""Turns: what a profile says when it is ready to be timed, what a referee then asks of it, and the seat where they meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

TURNS_WITH = "turns_with"
"""In the detail of a step_time: the variants that it took turns with, in a process of its own, as `compare` with data lets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """So many calls that are not timed, to fill caches that others have emptied; then so many that are, as one block."""

    untimed: int
    timed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """
    A profile whose other windows are full, and that waits for its turns.

    `call_s` are the seconds of a call so far, `least_s` those that a turn takes at least, `most_calls` how many there can be
    (None: as many as are asked for).
    """

    workload: Mapping[str, Any]
    call_s: float
    least_s: float
    most_calls: int | None


class Seat(Protocol):
    """Where one profile meets its referee; both methods wait until it is its turn, and give None when there are no more."""

    def ready(self, ready: Ready) -> Turn | None:
        """Say that the profile can be timed."""

    def played(self, step_s: float) -> Turn | None:
        """Say how many seconds a step took in the last turn."""


Seats = Callable[[str, "float | None"], "Seat | None"]
"""Gives the seat of a profile by its name, and the slow-down that its test allows (None: it says nothing); None without turns."""
