"""Two sides under one referee: a test runs on both, one at a time, and where both are ready they take turns."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from pytest_tfperf.child.process import Player
from pytest_tfperf.child.turn_client import Over, play_turn, size_of_turn
from pytest_tfperf.errors import PairedError
from pytest_tfperf.turns import Ready
from pytest_tfperf.values import Json

_REF_S, _REF_PATIENCE = (
    120.0,
    5.0,
)  # the ref's side may take so long to come to a profile, or so many times as long as this one did


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """
    What was played: for each pair of turns the seconds of a step in the working tree and on the ref, and whether the tree was first.

    `spent_s` are the seconds that all of it took; `over` says that there were no more steps to play with, `lost` why there could be
    no turns. `others` is the share of the sides' cores that other processes used meanwhile, where it matters.
    """

    played: tuple[tuple[float, float, bool], ...] = ()
    spent_s: float = 0.0
    over: bool = False
    lost: str = ""
    others: float | None = None

    @property
    def log_ratios(self) -> list[float]:
        """The natural logarithm of tree ÷ ref, for each pair of turns."""
        return [math.log(tree_s / ref_s) for tree_s, ref_s, _ in self.played]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Both sides are ready to time the profile of this name."""

    profile: str
    tree: Ready
    ref: Ready
    tolerance: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """
    A test on both sides, up to where the working tree's side asks what is said of it.

    `profiles` are those of each side as JSON, None of a side whose test did not come to its end; `lost` says why the ref's
    process is no more, `void` why the two cannot be compared, `stopped` that the test has stopped the run, `tolerance` the
    slow-down that it allows. `missed` are the profiles that both were ready for, but not while the other waited: it has passed
    them to look for one that it never had. `settings` are those of the working tree and of the ref, as `environment.describe` has them.
    """

    turns: Mapping[str, Turns] = field(default_factory=dict)
    openings: Mapping[str, Opening] = field(default_factory=dict)
    tree_profiles: list[Json] | None = None
    ref_profiles: list[Json] | None = None
    lost: str | None = None
    void: tuple[str, ...] = ()
    stopped: str | None = None
    missed: frozenset[str] = frozenset()
    tolerance: float | None = None
    settings: tuple[Json, Json] = field(default_factory=lambda: ({}, {}))


Play = Callable[[Opening], "Turns | None"]


def run_match(
    tree: Player,
    ref: Player | None,
    test: str,
    following: tuple[str | None, str | None],
    play: Play,
) -> Match:
    """
    Run a test on both sides; without a ref's side on the working tree's alone. Each side goes on alone while the other stands still.

    Args:
        following: The test that runs next on either side.
        play: Lets the sides take turns, where both have come to the same profile; None where none are wanted.

    Raises:
        PairedError: If the working tree's process ended or hung.
    """
    began = perf_counter()
    tree.run(test, following[0])
    at_tree = tree.next_event()
    limit_s = max(_REF_S, _REF_PATIENCE * (perf_counter() - began))
    at_ref: dict[str, Any] = (
        {"absent": True}
        if ref is None
        else _tried(lambda: ref.run(test, following[1]), ref, limit_s)
    )
    turns: dict[str, Turns] = {}
    openings: dict[str, Opening] = {}
    met: set[str] = set()
    passed: set[str] = set()
    while "ready" in at_tree:
        name = at_tree["profile"]
        met.add(name)
        while ref is not None and "ready" in at_ref and at_ref["profile"] != name:
            passed.add(at_ref["profile"])
            at_ref = _go_on(ref, limit_s)
        if ref is not None and "ready" in at_ref:
            openings[name] = _opening(at_tree, at_ref)
            try:
                played = play(openings[name])
            except PairedError as error:
                if tree.has_ended:
                    raise
                at_ref = {"lost": str(error)}
            else:
                turns |= {} if played is None else {name: played}
                at_ref = _go_on(ref, limit_s)
        tree.end_turns()
        at_tree = tree.next_event()
    while ref is not None and "ready" in at_ref:
        passed.add(at_ref["profile"])
        at_ref = _go_on(ref, limit_s)
    if ref is not None and "stopped" in at_ref:
        ref.close()
        at_ref = {"lost": f"it stopped the run: {at_ref['stopped']}"}
    void = dict.fromkeys(
        [*at_tree.get("void", ()), *at_ref.get("void", ())]
    )  # both may have the same reason
    return Match(
        turns=turns,
        openings=openings,
        tree_profiles=at_tree.get("profiles"),
        ref_profiles=at_ref.get("profiles"),
        lost=at_ref.get("lost"),
        void=tuple(void),
        stopped=at_tree.get("stopped"),
        tolerance=at_tree.get("tolerance"),
        missed=frozenset(met & passed),
        settings=(at_tree.get("setting", {}), at_ref.get("setting", {})),
    )


def take_turns(
    tree: Player,
    ref: Player,
    opening: Opening,
    seconds: float,
    is_enough: Callable[[Sequence[float]], bool],
) -> Turns:
    """
    Pairs of turns, in random order within a pair, until there are enough or the seconds are over.

    Args:
        is_enough: Told the log ratios of the pairs so far.

    Raises:
        PairedError: If a side ended or hung.
    """
    readies = opening.tree, opening.ref
    most = min(
        (ready.most_calls for ready in readies if ready.most_calls is not None), default=None
    )
    chance = random.SystemRandom()
    n_calls = 0
    played: list[tuple[float, float, bool]] = []
    logs: list[float] = []
    began = perf_counter()
    while perf_counter() - began < seconds and not (logs and is_enough(logs)):
        turn, tree_first = size_of_turn(readies, chance), chance.random() < 0.5
        n_calls += turn.untimed + turn.timed
        if most is not None and n_calls > most:
            return Turns(played=tuple(played), spent_s=perf_counter() - began, over=True)
        sides = [(tree, opening.tree), (ref, opening.ref)]
        try:
            times = {
                player.label: play_turn(player, turn, ready)
                for player, ready in (sides if tree_first else sides[::-1])
            }
        except Over:
            return Turns(played=tuple(played), spent_s=perf_counter() - began, over=True)
        played.append((times[tree.label], times[ref.label], tree_first))
        logs.append(math.log(times[tree.label] / times[ref.label]))
    return Turns(played=tuple(played), spent_s=perf_counter() - began)


def _opening(at_tree: Mapping[str, Any], at_ref: Mapping[str, Any]) -> Opening:
    return Opening(
        profile=at_tree["profile"],
        tree=Ready(**at_tree["ready"]),
        ref=Ready(**at_ref["ready"]),
        tolerance=at_tree["tolerance"],
    )


def _go_on(ref: Player, limit_s: float) -> dict[str, Any]:
    """Let the ref's profile end without more turns."""
    return _tried(ref.end_turns, ref, limit_s)


def _tried(start: Callable[[], None], ref: Player, limit_s: float) -> dict[str, Any]:
    """What the ref's side says next; that it is lost, where it is."""
    try:
        start()
        return ref.next_event(limit_s)
    except PairedError as error:
        return {"lost": str(error)}
