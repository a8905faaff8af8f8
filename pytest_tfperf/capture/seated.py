"""The turns of a profile that has a referee."""

from __future__ import annotations

from collections.abc import Callable, Generator

from pytest_tfperf.capture.garbage_collector import garbage_held_off
from pytest_tfperf.turns import Ready, Seat


def play_turns(seat: Seat, ready: Ready, block: Callable[[int], Generator[None, None, float]]) -> Generator[None]:
    """
    Blocks for as long as the referee asks for them; in between this process stands still.

    Args:
        block: So many calls, of which it gives the seconds of a step.
    """
    turn = seat.ready(ready)
    with garbage_held_off() as sweep:
        while turn is not None:
            sweep()
            yield from block(turn.untimed)
            turn = seat.played((yield from block(turn.timed)))
