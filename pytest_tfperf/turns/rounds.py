"""Rounds of turns: their order, their length, and the time of a step in one."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from pytest_tfperf.turn import Ready, Turn
from pytest_tfperf.turns.messages import Play, Ran
from pytest_tfperf.turns.pytest_child import ChildProcess

_PATIENCE, _PATIENCE_S = 10.0, 5.0  # a turn may take 10 times as long as expected, and 5 s more
_UNTIMED_SHARE = 0.125  # of a turn: refills the caches that the other process has emptied
# least timed part of a turn of a step with data: several of the bursts that a pipeline delivers in
_PIPELINE_S = 0.2
# least untimed part of one: requests to a disk, or sleeps, have ended while the process was stopped
_PIPELINE_UNTIMED_S = 0.1
_MOST_ALIKE = 10.0  # ratio of two steps up to which both run as many calls in a turn
_LEAST_CALL_S = 1e-6
_MOST_EPOCH_S = 1.0  # longest epoch that a turn covers whole

Played = TypeVar("Played")
Rounds = list[dict[str, Played]]
"""What the players found in each round, by player in the order in which they played."""


class NoMoreSteps(Exception):
    """A player has no more steps for a turn; the message says why."""


def run_rounds(
    players: Mapping[str, Callable[[], Played]],
    goes_on: Callable[[Rounds[Played]], bool],
    chance: random.Random,
    before_each: Callable[[], object] = lambda: None,
) -> tuple[Rounds[Played], str]:
    """
    Let players take turns, in random order in each round, as long as `goes_on`.

    Return the rounds that were complete, and why a player or `before_each` ended them by
    NoMoreSteps, else nothing.
    """
    rounds: Rounds[Played] = []
    try:
        while goes_on(rounds):
            before_each()
            order = chance.sample(list(players), len(players))
            rounds.append({name: players[name]() for name in order})
    except NoMoreSteps as error:
        return rounds, str(error)
    return rounds, ""


def turn_sizes(readies: Sequence[Ready], chance: random.Random) -> list[Turn]:
    """
    Return the turn of each profile: the same for all, unless their steps differ too much.

    A turn that is long enough for the fastest step would take a slow one minutes.
    """
    calls_s = [max(ready.call_s, _LEAST_CALL_S) for ready in readies]
    if max(calls_s) > _MOST_ALIKE * min(calls_s):
        return [turn_size([ready], chance) for ready in readies]
    return [turn_size(readies, chance)] * len(readies)


def turn_size(readies: Sequence[Ready], chance: random.Random) -> Turn:
    """
    Return a turn that is long enough for the fastest of the profiles that run it.

    A pipeline fills its buffers while an epoch begins, and computes beside the first steps. So the
    timed part covers whole epochs, if they are short.

    A pipeline that waits for several elements at a time delivers in bursts. So other turns of steps
    with data are longer, and the length of their untimed part is random: the timed part then begins
    at another point of a burst each time.
    """
    call_s = max(min(ready.call_s for ready in readies), _LEAST_CALL_S)
    least_s = max(ready.least_s for ready in readies)
    timed, untimed = math.ceil(least_s / call_s), math.ceil(_PIPELINE_UNTIMED_S / call_s)
    if epoch := epoch_of(readies):
        return Turn(untimed=untimed, timed=math.ceil(timed / epoch) * epoch)
    if not any(ready.workload.get("inputs") for ready in readies):
        return Turn(untimed=math.ceil(timed * _UNTIMED_SHARE), timed=timed)
    return Turn(
        untimed=untimed + chance.randrange(untimed),
        timed=math.ceil(max(least_s, _PIPELINE_S) / call_s),
    )


def epoch_of(readies: Sequence[Ready]) -> int | None:
    """Return the calls of the epochs that each turn covers whole; None if it covers parts."""
    epoch = readies[0].epoch_calls
    if not epoch or any(ready.epoch_calls != epoch for ready in readies):
        return None
    return epoch if epoch * max(ready.call_s for ready in readies) <= _MOST_EPOCH_S else None


def run_turn(child: ChildProcess, turn: Turn, ready: Ready) -> Ran:
    """
    Run one turn, and return the times of a step in it. Raises: PairedError, NoMoreSteps.

    After NoMoreSteps the next event of the child says more.
    """
    expected_s = (turn.untimed + turn.timed) * ready.call_s
    child.send(Play(turn=turn))
    event = child.next_event(_PATIENCE * expected_s + _PATIENCE_S)
    if not isinstance(event, Ran):
        child.put_back(event)
        raise NoMoreSteps(f"the data of {child.label} ended within a turn")
    return event
