"""
`compare` with data: each variant runs in a process of its own, which runs the same test again up to this call; this one referees.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any

import pytest

from pytest_tfperf.checks.limits import SHARED_CPU
from pytest_tfperf.child.cleanup import Janitor
from pytest_tfperf.child.process import Player, start_side
from pytest_tfperf.child.reports import last_lines, report_from
from pytest_tfperf.child.server import Side, test_name
from pytest_tfperf.child.turn_client import Over, play_turn, size_of_turn
from pytest_tfperf.errors import CaptureError, PairedError
from pytest_tfperf.machine.cores import pinned, ranges, split_cores
from pytest_tfperf.machine.locks import Exclusive
from pytest_tfperf.results import Profile
from pytest_tfperf.tf_runtime import takes_whole_gpus
from pytest_tfperf.turns import TURNS_WITH, Ready
from pytest_tfperf.values import Json
from pytest_tfperf.variants.comparison import Asked, Comparison
from pytest_tfperf.variants.outputs import check_outputs, leaves_from_json, leaves_to_json
from pytest_tfperf.variants.rounds import SECONDS, NoMoreSteps, Played, play_rounds

_LEAST_CORES = (
    2  # a pipeline on one core is not what it is elsewhere: TensorFlow has as many threads as cores
)
_GPU = (
    "compare with data runs variants in processes of their own, and TensorFlow gives this process all memory of the GPU: "
    "set TF_FORCE_GPU_ALLOW_GROWTH=true"
)


def can_run_apart() -> bool:
    """Whether processes can be stopped and go on here."""
    return hasattr(signal, "SIGSTOP") and hasattr(os, "killpg")


class Variants:
    """Runs the variants of one test's calls of `compare`; see `apart.Apart`."""

    def __init__(
        self,
        item: pytest.Item,
        shares_cpu: bool,
        announce: Callable[[str], None],
        exclusive: Exclusive,
    ) -> None:
        self._item, self._shares_cpu, self._announce, self._exclusive = (
            item,
            shares_cpu,
            announce,
            exclusive,
        )
        self._root = item.config.rootpath
        self._test = test_name(item, self._root)
        self._referee_cores, self._cores = split_cores(_LEAST_CORES)
        self._earlier: list[Json] = []

    def __call__(self, asked: Asked) -> Comparison:
        """See `apart.Apart`."""
        if takes_whole_gpus():
            raise CaptureError(_GPU)
        try:
            with self._exclusive(self._announce):  # for all processes, of which one runs at a time
                found = self._found(asked)
        except (CaptureError, AssertionError) as error:  # which the test may expect, and go on
            self._earlier.append({"error": type(error).__name__, "message": str(error)})
            raise
        self._earlier.append(_to_json(found))
        return found

    def _found(self, asked: Asked) -> Comparison:
        janitor, players = Janitor(), dict[str, Player]()
        try:
            return self._compared(asked, janitor, players)
        except PairedError as error:
            raise CaptureError(str(error)) from None
        except (
            KeyboardInterrupt,
            pytest.exit.Exception,
            pytest.fail.Exception,
        ):  # the last is what plugins for time limits raise
            for player in players.values():
                player.kill()
            raise
        finally:
            for player in players.values():
                player.close()
            janitor.close()
            self._announce("")

    def _compared(self, asked: Asked, janitor: Janitor, players: dict[str, Player]) -> Comparison:
        self._announce(f"comparing {', '.join(asked.profiles)}: starting a process for each")
        file = self._test.partition("::")[0]
        for variant in asked.profiles:
            label = f"the process of variant {variant!r}"
            players[variant] = start_side(
                self._item.config, label, janitor, self._cores, root=self._root, files=[file]
            )
        for player in players.values():
            self._collected(player)
        ready = {
            variant: self._ready(player, variant, asked.profiles[variant])
            for variant, player in players.items()
        }
        self._announce(
            f"comparing {', '.join(asked.profiles)}, about {min(SECONDS, asked.max_seconds):.0f} s"
        )
        turns, notes = self._played(players, ready, asked.max_seconds)
        ended = {variant: self._ended(player, variant) for variant, player in players.items()}
        if not any(turns.values()):
            raise CaptureError(f"not one round of turns was played: {notes[0]}")
        notes = (*self._notes(ready), *notes)
        if asked.tolerance is not None:
            notes += check_outputs(
                {variant: leaves_from_json(event["outputs"]) for variant, event in ended.items()},
                asked.tolerance,
            )
        profiles = {
            variant: _marked(Profile.from_json(event["profiled"]), variant, ended)
            for variant, event in ended.items()
        }
        return Comparison(turns=turns, profiles=profiles, notes=notes)

    def _collected(self, player: Player) -> None:
        """Wait until a process has collected the test, and let it stand still."""
        player.await_collected()
        if self._test not in player.collected:
            why = (
                player.errors_of(self._test)
                or "  collected a second time, the tests have other names"
            )
            raise CaptureError(f"{player.label} has no test of this name:\n{why}")

    def _ready(self, player: Player, variant: str, profile: str) -> Ready:
        """Let a process run the test until the other windows of the variant's profile are full."""
        player.run(
            self._test,
            None,
            part={"variant": variant, "profile": profile, "earlier": self._earlier},
        )
        event = player.next_event()
        if "ready" not in event:
            raise self._failed(player, variant, event)
        return Ready(**event["ready"])

    def _played(
        self, players: Mapping[str, Player], ready: Mapping[str, Ready], max_seconds: float
    ) -> Played:
        with pinned(self._referee_cores):
            turns = {
                variant: _playing(player, variant, ready[variant])
                for variant, player in players.items()
            }
            return play_rounds(turns, max_seconds, perf_counter())

    def _ended(self, player: Player, variant: str) -> dict[str, Any]:
        """What a process says when its profile is made."""
        player.end_turns()
        event = player.next_event()
        if "profiled" not in event:
            raise self._failed(player, variant, event)
        return event

    def _failed(self, player: Player, variant: str, event: Mapping[str, Any]) -> CaptureError:
        """Why a process has come to the end of the test without the profile."""
        if "stopped" in event:
            return CaptureError(
                f"variant {variant!r} stopped the run in its process: {event['stopped']}"
            )
        reports = [report_from(self._item, data) for data in player.reports]
        for report in reports:
            if report.failed:
                printed = "".join(
                    f"\n{title}:\n{text}" for title, text in report.sections if text.strip()
                )
                return CaptureError(
                    f"variant {variant!r} fails in its process:\n{last_lines(report.longreprtext + printed)}"
                )
            if report.skipped:
                return CaptureError(
                    f"variant {variant!r} is skipped in its process: {report.longreprtext}"
                )
        return CaptureError(
            f"the process of variant {variant!r} came to the end of the test without this call of compare: run again, a test must take "
            "the same way"
        )

    def _notes(self, ready: Mapping[str, Ready]) -> tuple[str, ...]:
        """Where the variants ran, and what makes their steps differ."""
        where = (
            f"on core{'s' * (len(self._cores) > 1)} {ranges(self._cores)}"
            if self._cores
            else "on any core"
        )
        notes = [f"each variant ran in a process of its own, {where}"]
        batches = {variant: one.workload.get("batch") for variant, one in ready.items()}
        if len(set(batches.values())) > 1:
            sizes = ", ".join(
                f"{batch if batch is not None else 'unknown'} of {variant}"
                for variant, batch in batches.items()
            )
            notes.append(
                f"batch sizes differ ({sizes}), so that a step is not the same work: compare throughput"
            )
        return (*notes, SHARED_CPU) if self._shares_cpu else tuple(notes)


class Part:
    """In a variant's process: answers calls of `compare` up to that which the process is for; see `apart.Apart`."""

    def __init__(self, side: Side, part: Mapping[str, Any]) -> None:
        self._side, self._variant, self._profile = side, part["variant"], part["profile"]
        self._earlier = list(part["earlier"])

    def __call__(self, asked: Asked) -> Comparison:
        """See `apart.Apart`; the call that the process is for does not return."""
        if self._earlier:
            return _from_json(self._earlier.pop(0))
        if asked.profiles.get(self._variant) != self._profile:
            others = ", ".join(asked.profiles.values())
            raise CaptureError(
                f"run again, this call of compare has other variants: {others} and no {self._profile}"
            )
        profile, leaves = asked.measure(self._variant)
        self._side.ask(profiled=profile.to_json(), outputs=leaves_to_json(leaves))
        pytest.exit("all that is wanted of this process is done")


def _playing(player: Player, variant: str, ready: Ready) -> Callable[[], float]:
    """What plays a turn of a variant."""
    chance = random.SystemRandom()

    def play() -> float:
        try:
            return play_turn(player, size_of_turn([ready], chance), ready)
        except Over:
            raise NoMoreSteps(
                f"the data of {variant} ended within a turn, and cannot be started again"
            ) from None

    return play


def _marked(profile: Profile, variant: str, variants: Iterable[str]) -> Profile:
    """The profile with a word on whom it took turns with."""
    value = profile.value("step_time")
    others = [other for other in variants if other != variant]
    return replace(
        profile,
        metrics={
            **profile.metrics,
            "step_time": replace(value, detail={**value.detail, TURNS_WITH: others}),
        },
    )


def _to_json(found: Comparison) -> Json:
    profiles = {variant: profile.to_json() for variant, profile in found.profiles.items()}
    return {
        "turns": {variant: list(turns) for variant, turns in found.turns.items()},
        "profiles": profiles,
        "notes": list(found.notes),
    }


def _from_json(data: Json) -> Comparison:
    """What an earlier call found, or how it failed."""
    if "error" in data:
        raise {error.__name__: error for error in (CaptureError, AssertionError)}[data["error"]](
            data["message"]
        )
    return Comparison(
        turns={variant: tuple(turns) for variant, turns in data["turns"].items()},
        profiles={
            variant: Profile.from_json(profile) for variant, profile in data["profiles"].items()
        },
        notes=tuple(data["notes"]),
    )
