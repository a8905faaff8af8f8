"""Run one test in both versions, one at a time, with turns where both are ready for them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from pytest_tfperf.errors import PairedError
from pytest_tfperf.quantities import SECONDS, format_quantity
from pytest_tfperf.results import Profile
from pytest_tfperf.stats.sequential import LEAST_TURNS, USUAL_PAIRS, PairEstimate, pair_estimate
from pytest_tfperf.turn import Ready, Turn
from pytest_tfperf.turns.messages import AtProfile, FromChild, Profiled, Ran, Stopped
from pytest_tfperf.turns.pytest_child import ChildProcess
from pytest_tfperf.turns.rounds import (
    NoMoreSteps,
    Rounds,
    epoch_of,
    run_rounds,
    run_turn,
    turn_sizes,
)
from pytest_tfperf.values import Json, Unknown

# the ref may take so long to come to a profile, or so many times as long as the working tree did
_REF_S, _REF_PATIENCE = 120.0, 5.0
_TREE, _REF = "tree", "ref"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTurns:
    """The turns of one profile in a pair of processes."""

    pairs: tuple[tuple[float, float, bool], ...] = ()
    """Seconds of a step in the working tree and on the ref, and whether the working tree ran first.
    """
    cpu_pairs: tuple[tuple[float, float], ...] = ()
    """Processor time of a step in the same turns; empty if it is unknown in any of them."""
    spent_s: float = 0.0
    waited_s: float = 0.0
    """Seconds from the end of the process pair before until these turns began."""
    exhausted: bool = False
    covers_epochs: bool = False
    """True if each turn covers whole epochs, with all elements that their steps consume."""
    other_load: float | None = None
    """Share of the cores that other processes used meanwhile, where it matters."""

    @property
    def log_ratios(self) -> list[float]:
        """The natural logarithm of tree ÷ ref, for each pair of turns."""
        return [math.log(tree_s / ref_s) for tree_s, ref_s, _ in self.pairs]

    @property
    def cpu_log_ratios(self) -> list[float]:
        """The natural logarithm of tree ÷ ref, of processor time, for each pair of turns."""
        return [math.log(tree_s / ref_s) for tree_s, ref_s in self.cpu_pairs]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTime:
    """The time that a process pair has for its turns."""

    seconds: float
    """Seconds after which no turn begins, if there are at least as many as `least` pairs."""
    most_s: float
    """Seconds after which no turn begins."""
    least: int = 0
    """Pairs of turns."""

    def is_left(self, spent_s: float, n: int) -> bool:
        """Return whether another pair of turns may begin after n pairs in these seconds."""
        return spent_s < (self.seconds if n >= self.least else self.most_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyPair:
    """A profile that both versions are ready to time."""

    profile: str
    tree: Ready
    ref: Ready
    tolerance: float | None
    """The slow-down that the test allows; None if it names none."""

    def steps_left(self, here: str, ref: str) -> str:
        """Return the steps left for turns on each version, where they run out: `: 3 on HEAD`."""
        sides = ((here, self.tree.most_calls), (ref, self.ref.most_calls))
        known = [f"{n_left} on {version}" for version, n_left in sides if n_left is not None]
        return f": {', '.join(known)}" if known else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTest:
    """A test in both versions, up to where the working tree's process asks for its checks."""

    turns: Mapping[str, PairedTurns] = field(default_factory=dict)
    ready_pairs: Mapping[str, ReadyPair] = field(default_factory=dict)
    tree_profiles: tuple[Profile, ...] | None = None
    """Profiles of the working tree; None if its test did not come to its end."""
    ref_profiles: tuple[Profile, ...] | Unknown | None = None
    """
    Profiles of the ref; None if its test did not come to its end, Unknown if its process was lost.
    """
    void: tuple[str, ...] = ()
    stopped: str | None = None
    missed: frozenset[str] = frozenset()
    """
    Profiles that both were ready for, but not at the same time.

    The ref's process had passed them, to look for a profile that it never made.
    """
    tolerance: float | None = None
    """The slow-down that the test allows; None if it names none."""
    settings: tuple[Json, Json] = field(default_factory=lambda: ({}, {}))
    """Settings of the working tree and of the ref, as `description.describe` has them."""


TakeTurns = Callable[[ReadyPair], "PairedTurns | None"]
"""Lets both versions take turns with a profile; None where no turns are wanted."""


def run_paired_test(
    tree: ChildProcess,
    ref: ChildProcess | None,
    test: str,
    following: tuple[str | None, str | None],
    take_turns: TakeTurns,
) -> PairedTest:
    """Run a test in both versions, each while the other stands still. Raises: PairedError."""
    return _Run(tree, ref, take_turns).run(test, following)


class _Run:
    """One call of `run_paired_test`; `_at_ref` is the last event of the ref."""

    def __init__(self, tree: ChildProcess, ref: ChildProcess | None, take_turns: TakeTurns) -> None:
        self._tree, self._ref, self._take_turns = tree, ref, take_turns
        self._at_ref: FromChild | Unknown | None = None
        self._ref_s = _REF_S
        self._turns: dict[str, PairedTurns] = {}
        self._ready_pairs: dict[str, ReadyPair] = {}
        self._came_to: set[str] = set()
        self._passed: set[str] = set()

    def run(self, test: str, following: tuple[str | None, str | None]) -> PairedTest:
        """See `run_paired_test`."""
        began = perf_counter()
        self._tree.run(test, following[0])
        at_tree = self._tree.next_event()
        self._ref_s = max(_REF_S, _REF_PATIENCE * (perf_counter() - began))
        if self._ref is not None:
            self._at_ref = self._event_of(self._ref, lambda ref: ref.run(test, following[1]))
        while isinstance(at_tree, AtProfile):
            self._meet(at_tree)
            self._tree.end_turns()
            at_tree = self._tree.next_event()
        self._pass_until(lambda _: False)
        if self._ref is not None and isinstance(self._at_ref, Stopped):
            self._ref.close()
            self._at_ref = Unknown(f"it stopped the run: {self._at_ref.why}")
        return self._result(at_tree)

    def _meet(self, at_tree: AtProfile) -> None:
        """Take turns with the profile that the working tree is ready for, if the ref makes it."""
        name = at_tree.profile
        self._came_to.add(name)
        self._pass_until(lambda profile: profile == name)
        if self._ref is None or not isinstance(self._at_ref, AtProfile):
            return
        self._ready_pairs[name] = _ready_pair(at_tree, self._at_ref)
        try:
            turns = self._take_turns(self._ready_pairs[name])
        except PairedError as error:
            if self._tree.has_ended:
                raise
            self._at_ref = Unknown(str(error))
            return
        if turns is not None:
            self._turns[name] = turns
        self._at_ref = self._event_of(self._ref, lambda ref: ref.end_turns())

    def _pass_until(self, is_wanted: Callable[[str], bool]) -> None:
        """Let the ref finish its profiles without turns, up to the wanted one."""
        while (
            self._ref is not None
            and isinstance(self._at_ref, AtProfile)
            and not is_wanted(self._at_ref.profile)
        ):
            self._passed.add(self._at_ref.profile)
            self._at_ref = self._event_of(self._ref, lambda ref: ref.end_turns())

    def _event_of(
        self, ref: ChildProcess, start: Callable[[ChildProcess], None]
    ) -> FromChild | Unknown:
        """Return the next event of the ref, or why it is lost."""
        try:
            start(ref)
            return ref.next_event(self._ref_s)
        except PairedError as error:
            return Unknown(str(error))

    def _result(self, at_tree: FromChild) -> PairedTest:
        at_ref = self._at_ref
        tree = at_tree if isinstance(at_tree, Profiled) else None
        ref = at_ref if isinstance(at_ref, Profiled) else None
        void = [reason for one in (tree, ref) if one for reason in one.void]
        return PairedTest(
            turns=self._turns,
            ready_pairs=self._ready_pairs,
            tree_profiles=tree.profiles if tree else None,
            ref_profiles=at_ref if isinstance(at_ref, Unknown) else ref.profiles if ref else None,
            void=tuple(dict.fromkeys(void)),  # both may have the same reason
            stopped=at_tree.why if isinstance(at_tree, Stopped) else None,
            tolerance=tree.tolerance if tree else None,
            missed=frozenset(self._came_to & self._passed),
            settings=(tree.setting if tree else {}, ref.setting if ref else {}),
        )


def run_turns(
    tree: ChildProcess,
    ref: ChildProcess,
    ready_pair: ReadyPair,
    time: TurnTime,
    is_enough: Callable[[Sequence[float]], bool],
) -> PairedTurns:
    """Run pairs of turns in random order until `is_enough` or time is over. Raises: PairedError."""
    readies = ready_pair.tree, ready_pair.ref
    left = [math.inf if ready.most_calls is None else ready.most_calls for ready in readies]
    chance = random.SystemRandom()
    turns: list[Turn] = []
    began = perf_counter()

    def draw_turns() -> None:
        turns[:] = turn_sizes(readies, chance)
        left[:] = [n - turn.untimed - turn.timed for n, turn in zip(left, turns, strict=True)]
        if min(left) < 0:
            raise NoMoreSteps("too few steps are left for a turn")

    def goes_on(rounds: Rounds[Ran]) -> bool:
        logs = [math.log(one[_TREE].step_s / one[_REF].step_s) for one in rounds]
        return time.is_left(perf_counter() - began, len(logs)) and not (logs and is_enough(logs))

    players = {
        _TREE: lambda: run_turn(tree, turns[0], readies[0]),
        _REF: lambda: run_turn(ref, turns[1], readies[1]),
    }
    rounds, exhausted = run_rounds(players, goes_on, chance, draw_turns)
    return PairedTurns(
        pairs=tuple(
            (one[_TREE].step_s, one[_REF].step_s, next(iter(one)) == _TREE) for one in rounds
        ),
        cpu_pairs=_cpu_pairs(rounds),
        spent_s=perf_counter() - began,
        exhausted=bool(exhausted),
        covers_epochs=epoch_of(readies) is not None,
    )


def _cpu_pairs(rounds: Rounds[Ran]) -> tuple[tuple[float, float], ...]:
    """Return the processor times of a step, if all are known."""
    times = [(one[_TREE].cpu_s, one[_REF].cpu_s) for one in rounds]
    known = [(tree_s, ref_s) for tree_s, ref_s in times if tree_s is not None and ref_s is not None]
    return tuple(known) if len(known) == len(times) else ()


def _ready_pair(at_tree: AtProfile, at_ref: AtProfile) -> ReadyPair:
    return ReadyPair(
        profile=at_tree.profile,
        tree=at_tree.ready,
        ref=at_ref.ready,
        tolerance=at_tree.tolerance,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterTurns:
    """The turns of a profile in the process pairs after the first one."""

    turns: tuple[PairedTurns, ...] = ()
    why: str = ""
    """Why another process pair could not run, if one was wanted."""


def pair_estimates(first: PairedTurns, later: LaterTurns) -> list[PairEstimate]:
    """Return the estimate of each process pair."""
    return [_estimate(turns, turns.log_ratios) for turns in (first, *later.turns)]


def cpu_estimates(first: PairedTurns, later: LaterTurns) -> list[PairEstimate]:
    """Return the estimates of processor time; none if it is unknown in any process pair."""
    every = (first, *later.turns)
    if not all(turns.cpu_pairs for turns in every):
        return []
    return [_estimate(turns, turns.cpu_log_ratios) for turns in every]


def _estimate(turns: PairedTurns, log_ratios: Sequence[float]) -> PairEstimate:
    return replace(pair_estimate(log_ratios), is_busy=turns.other_load is not None)


def next_time(
    first: PairedTurns, later: LaterTurns, budget_s: float, n_pairs: int, is_suspected: bool
) -> TurnTime | None:
    """
    Return the time for the turns of another process pair; None if too little is left.

    The second pair always has some, and so has the third if that is all a regression lacks. The
    budget counts from the first turn on, with the seconds in which processes start.
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

    Another process pair would need `waited_s` to be ready, as this one did.
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
