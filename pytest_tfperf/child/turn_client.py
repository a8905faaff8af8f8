"""Measure two profiles alternately: the parent's side of a turn."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from pytest_tfperf.child.process import Player
from pytest_tfperf.turns import Ready, Turn

_PATIENCE, _PATIENCE_S = (
    10.0,
    5.0,
)  # a turn may take so many times as long as expected, and so much more


_UNTIMED_SHARE = 0.125  # of a turn: fills the caches that the other side has emptied


_PIPELINE_S = (
    0.2  # of a turn of a step with data at least: some of the bursts that a pipeline delivers in
)


_PIPELINE_UNTIMED_S = 0.1  # before, at least: what was waited for when the process was stopped (a disk, a sleep) has come meanwhile


class Over(Exception):
    """A side had no more steps, or its test failed, within a turn."""


def size_of_turn(readies: Sequence[Ready], chance: random.Random) -> Turn:
    """
    A turn that is long enough for the quickest of those that play it alike.

    A pipeline that waits for several elements at a time delivers in bursts. So turns of steps with data are longer, and how long the
    untimed part is differs from turn to turn, so that the timed one does not begin at the same point of a burst each time.
    """
    call_s, least_s = (
        max(min(ready.call_s for ready in readies), 1e-6),
        max(ready.least_s for ready in readies),
    )
    if not any(ready.workload.get("inputs") for ready in readies):
        timed = math.ceil(least_s / call_s)
        return Turn(untimed=math.ceil(timed * _UNTIMED_SHARE), timed=timed)
    untimed = math.ceil(_PIPELINE_UNTIMED_S / call_s)
    return Turn(
        untimed=untimed + chance.randrange(untimed),
        timed=math.ceil(max(least_s, _PIPELINE_S) / call_s),
    )


def play_turn(player: Player, turn: Turn, ready: Ready) -> float:
    """
    Seconds of a step in one turn.

    Raises:
        Over: If the profile has come to its end, or the test; what the side has said is its next event.
        PairedError: If the side ended or hung.
    """
    expected = (turn.untimed + turn.timed) * ready.call_s
    player.say(turn={"untimed": turn.untimed, "timed": turn.timed})
    event = player.next_event(_PATIENCE * expected + _PATIENCE_S)
    if "played" not in event:
        player.put_back(event)
        raise Over
    return float(event["played"])
