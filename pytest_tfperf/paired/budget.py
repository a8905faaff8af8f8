"""The time of a profile's turns in all process pairs: what is left of it, and how it was spent."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pytest_tfperf.paired.coordinator import PairedTurns, TurnTime
from pytest_tfperf.quantities import SECONDS, format_quantity
from pytest_tfperf.stats.sequential import LEAST_TURNS, USUAL_PAIRS, PairEstimate, pair_estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterTurns:
    """The turns of a profile in the process pairs after the first one."""

    turns: tuple[PairedTurns, ...] = ()
    """The turns of each process pair that had any."""
    why: str = ""
    """Why another process pair could not run, if one was wanted."""


def pair_estimates(first: PairedTurns, later: LaterTurns) -> list[PairEstimate]:
    """Return the estimate of each process pair."""
    return [pair_estimate(turns.log_ratios) for turns in (first, *later.turns)]


def next_time(
    first: PairedTurns, later: LaterTurns, budget_s: float, n_pairs: int, is_suspected: bool
) -> TurnTime | None:
    """
    Return the time for the turns of another process pair; None if too little is left.

    The second pair always has some, and so has the third if that is all a regression lacks.

    Args:
        first: Turns of the first process pair.
        later: Turns of the others so far.
        budget_s: Seconds from the first turn on, also those in which processes start.
        n_pairs: Number of process pairs that share them.
        is_suspected: True if too few process pairs so far show a regression.
    """
    share = budget_s / n_pairs
    left = budget_s - _spent_s(first) - sum(map(_spent_s, later.turns))
    if not later.turns or (is_suspected and len(later.turns) + 1 < USUAL_PAIRS):
        left = max(left, min(share, first.spent_s))
    elif left - later.turns[-1].waited_s < _least_s(first):
        return None
    return TurnTime(seconds=min(share, left), most_s=left, least=LEAST_TURNS)


def time_when_ready(time: TurnTime, waited_s: float, first: PairedTurns) -> TurnTime:
    """
    Return the time for turns that may begin now: all that is left, if no other pair would follow.

    Args:
        time: The time that `next_time` returned.
        waited_s: Seconds since then. Another process pair would need as long to be ready.
        first: Turns of the first process pair.
    """
    left = time.most_s - waited_s
    if left - time.seconds - waited_s >= _least_s(first):
        return time
    return replace(time, seconds=max(time.seconds, left))


def describe_spending(first: PairedTurns, later: LaterTurns) -> str:
    """Return the seconds of turns and of waiting for later process pairs, for a message."""
    turns = [first, *later.turns]
    played = format_quantity(sum(one.spent_s for one in turns), SECONDS)
    if len(turns) == 1:
        return f"spent {played} on turns in one pair of processes"
    waited = format_quantity(sum(one.waited_s for one in later.turns), SECONDS)
    return f"spent {played} on turns in {len(turns)} pairs of processes, {waited} on their start"


def _least_s(first: PairedTurns) -> float:
    """Return the seconds of the fewest turns of a process pair that count."""
    return LEAST_TURNS * first.spent_s / len(first.pairs)


def _spent_s(turns: PairedTurns) -> float:
    return turns.spent_s + turns.waited_s


def needed_budget(turns: PairedTurns, later: LaterTurns) -> str:
    """Return the budget that would have given two process pairs enough turns for an interval."""
    turn_s = turns.spent_s / len(turns.pairs)
    waited_s = sum(one.waited_s for one in later.turns)
    budget = math.ceil(2 * LEAST_TURNS * turn_s + waited_s)
    took = f"a pair of turns took {format_quantity(turn_s, SECONDS)}, and {LEAST_TURNS} are needed"
    return f"{took} in each of two pairs of processes: --tfperf-budget {budget} at least"
