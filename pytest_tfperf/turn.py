"""The protocol for measuring profiles alternately: turns, and the client that takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

PROTOCOL = 7
"""
Version of the messages between a run and its child processes (`turns.messages`).

Both ends of a paired run with two Pythons must have the same; count it up with each change of
messages or options, since a child gets the options of the run.
"""
TURNS_WITH = "turns_with"
"""Key in the detail of a step_time: the variants measured alternately with this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The calls that one process runs before it is another's turn."""

    untimed: int
    """Calls that refill the caches which other processes have emptied."""
    timed: int
    """Calls that are timed as one block, after the untimed ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A profile that has filled its other windows and waits for its turns."""

    workload: Mapping[str, Any]
    call_s: float
    """Seconds of a call so far."""
    least_s: float
    """Shortest timed part of a turn, in seconds."""
    most_calls: int | None
    """Calls that are left; None if they do not run out."""
    epoch_calls: int | None = None
    """Calls of an epoch of the data; None without epochs, or if their length is not known."""


class TurnClient(Protocol):
    """
    The client of a coordinator, in a child process.

    Each method waits for the coordinator's answer, which is None after the last turn.
    """

    def ready(self, ready: Ready) -> Turn | None:
        """Announce that the profile can be timed."""

    def ran(self, step_s: float, cpu_s: float | None) -> Turn | None:
        """Report the seconds of a step in the last turn, and its processor time if it is known."""
