"""Functions that the windows of a profile call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_tfperf.machine.locks import Exclusive
from pytest_tfperf.turns import TurnClient


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowHooks:
    """Functions that the windows call."""

    settling_steps: Callable[[Path, int], int]
    """
    Returns the number of steps to wait before the windows are measured again, 0 if not needed.

    Takes the trace and the number of steps since the last pause, in which input buffers drained.
    """
    announce: Callable[[str], None]
    """Receives a text for each long phase, and an empty text at the end."""
    exclusive: Exclusive
    """Keeps other processes from measuring at the same time."""
    turn_client: TurnClient | None = None
    """Takes turns with other processes."""
