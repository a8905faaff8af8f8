"""
Try remedies in processes of their own, which run the test again up to the profiled call.

What hangs, crashes or takes all memory there is stopped, and costs one remedy. A remedy of the
process takes turns in its process with the unchanged step in another one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NoReturn

import msgspec
import pytest

from pytest_tfperf.errors import CaptureError, PairedError
from pytest_tfperf.frameworks.in_use import why_gpus_are_full
from pytest_tfperf.machine.locks import Exclusive
from pytest_tfperf.machine.memory import available_bytes
from pytest_tfperf.quantities import SECONDS, format_quantity
from pytest_tfperf.remedies import process as of_process
from pytest_tfperf.remedies import trial as of_trial
from pytest_tfperf.remedies.process import OfProcess
from pytest_tfperf.remedies.remedy import Call
from pytest_tfperf.remedies.results import Remedies, Tried
from pytest_tfperf.remedies.trial import LATE, ROUNDS, UNCHANGED
from pytest_tfperf.report.remedies import RANDOM, UNCOMPARED
from pytest_tfperf.stats.process_spread import constant_spread
from pytest_tfperf.turn import Turn
from pytest_tfperf.turns.child_plugin import CoordinatedServer
from pytest_tfperf.turns.children import Calls, Spec, children
from pytest_tfperf.turns.messages import Answer, AtCall, Doing, Found, Play, Ran, Try
from pytest_tfperf.turns.pytest_child import (
    ChildProcess,
    ProcessLost,
    can_start_processes,
)
from pytest_tfperf.variants.comparison import Comparison, Ratio
from pytest_tfperf.variants.outputs import leaves_from_json, leaves_to_json
from pytest_tfperf.variants.turns import compare_rounds

__tracebackhide__ = True

CALL = "try_remedies"
"""Name of the call in a test that these processes are for."""
_LIMIT_SHARE, _LEAST_LIMIT_S = 1 / 3, 5.0  # of all seconds, that one remedy may take
_LEAST_FREE = 2**28  # bytes of memory: with fewer the system ends processes, any of them
_FREE_SHARE = 1 / 16  # of what was available before
_SLOWER = 5.0  # times that a process may need to come to the call, compared with the first one
_QUANTILE = 2.58  # of the normal distribution: 99 % lie within


def why_not_apart() -> str:
    """Return why no process of its own can try remedies of this one's steps, else nothing."""
    if not can_start_processes():
        return "this system cannot stop processes"
    return why_gpus_are_full()


def not_apart(call: Call, why: str) -> list[Tried]:
    """Return the remedies of the process that a profile suggests, with why none can be tried."""
    wanted = of_trial.suggested(call, of_process.REMEDIES)
    text = f"could not be tried: it needs a process of its own, and {why}"
    return [Tried(remedy=one.name, why=text) for one in wanted]


class TrialProcesses:
    """Tries the remedies of one test's profiles."""

    def __init__(
        self, item: pytest.Item, announce: Callable[[str], None], exclusive: Exclusive
    ) -> None:
        self._calls = Calls(item, CALL, announce, exclusive)

    def __call__(self, call: Call, name: str, seconds: float) -> Remedies:
        """Try the remedies of one profile. Raises: CaptureError."""
        of_trial.refuse(call)

        def found() -> Answer:  # its time begins when no other process measures
            return Answer(profiles={}, found=_Apart(self._calls, call, name, seconds).run())

        return remedies_of(self._calls.answered(found).found)


def remedies_of(sent: Any) -> Remedies:
    """Return the remedies that a process has sent."""
    found: Remedies = msgspec.convert(msgspec.to_builtins(sent), Remedies)
    return found


def try_here(server: CoordinatedServer, call: Call) -> NoReturn:
    """Try remedies in a process that was started for this call, and end its test."""
    with suppress(
        OSError
    ):  # of several processes Linux ends this one first (proc_pid_oom_score_adj(5))
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
    task = server.ask(AtCall())
    assert isinstance(task, Try)
    for variable, value in task.environment.items():
        if (now := os.environ.get(variable)) != value:
            raise CaptureError(f"the code of the test sets {variable} to {now}")
    text, limit_s = "", max(task.seconds, task.limit_s)  # the first step traces and compiles

    def announce(said: str) -> None:
        nonlocal text
        text = said

    def runs(remedy: str, found: Remedies) -> None:
        server.send(Doing(remedy=remedy, text=text, seconds=limit_s, found=found))

    own = replace(call, profile=task.profile, framework=task.framework)
    with of_trial.trial_of(own, task.seconds, announce, runs) as trial:
        trial.begin()
        limit_s = task.limit_s
        if not task.is_unchanged:
            wanted = of_trial.suggested(own, of_trial.REMEDIES)
            trial.run([one for one in wanted if one.name not in task.without])
        found = Found(
            remedies=trial.found(),
            outputs=leaves_to_json(trial.expected),
            is_random=trial.is_random,
            spread=trial.spread,
            turn_s=trial.turn_s,
        )
        answer = server.ask(found)
        while isinstance(answer, Play):
            answer = server.ask(Ran(step_s=trial.turn()))
    pytest.exit("this process has done its work")


class _Stopped(Exception):
    """A remedy ended its process, or was stopped with it; the message says how."""

    def __init__(self, remedy: str, how: str, found: Remedies) -> None:
        super().__init__(how)
        self.remedy = remedy
        self.found = found
        """What the process had measured before."""


@dataclass(frozen=True, slots=True)
class _Player:
    """A process that waits with an unchanged step in its environment."""

    child: ChildProcess
    found: Found

    def turn(self, limit_s: float) -> float:
        """Run a turn, and return the seconds of a step in it. Raises: PairedError."""
        self.child.send(Play(turn=Turn(untimed=0, timed=0)))  # whose size the process knows
        event = self.child.next_event(limit_s)
        if not isinstance(event, Ran):
            raise PairedError(f"the step of {self.child.label} ended within a turn")
        return event.step_s


class _Apart:
    """The trial of one profile."""

    def __init__(self, calls: Calls, call: Call, name: str, seconds: float) -> None:
        self._calls, self._call, self._name = calls, call, name
        self._began = perf_counter()
        self._deadline = self._began + seconds
        self._limit_s = max(seconds * _LIMIT_SHARE, _LEAST_LIMIT_S)
        self._start_s = 0.0
        self._least_free = max(_LEAST_FREE, _FREE_SHARE * (available_bytes() or 0))
        self._stopped: list[Tried] = []
        self._kept = Remedies(tried=(), unchanged_s=None, seconds=0.0)
        """What processes had measured that were stopped."""
        self._again: Found | None = None

    def run(self) -> Remedies:
        """Try all remedies; begin again without a remedy that was stopped."""
        while True:
            try:
                found = self._attempt()
            except _Stopped as error:
                self._stopped.append(Tried(remedy=error.remedy, why=str(error)))
                self._kept = self._with_kept(error.found)
                if self._left_s < self._start_s:
                    return self._late()
                continue
            return replace(
                found,
                tried=(*found.tried, *self._stopped),
                seconds=perf_counter() - self._began,
            )

    @property
    def _left_s(self) -> float:
        return self._deadline - perf_counter()

    def _attempt(self) -> Remedies:
        """Try what was not stopped so far. Raises: _Stopped."""
        with ExitStack() as stack:
            own = self._player(stack, "the remedies", {}, is_unchanged=False)
            found = self._with_kept(remedies_of(own.found.remedies))
            return self._with_process(stack, own, found)

    def _with_kept(self, found: Remedies) -> Remedies:
        """Return remedies with those that earlier processes had measured."""
        kept = self._kept
        return replace(
            found,
            tried=(*kept.tried, *found.tried),
            unchanged_s=found.unchanged_s or kept.unchanged_s,
            notes=tuple(dict.fromkeys((*kept.notes, *found.notes))),
        )

    def _late(self) -> Remedies:
        """Return what was measured, and that all else had no time but what was stopped."""
        known = (*self._kept.tried, *self._stopped)
        names = {one.remedy for one in known}
        wanted = [
            one.name
            for one in (
                *of_trial.suggested(self._call, of_trial.REMEDIES),
                *of_trial.suggested(self._call, of_process.REMEDIES),
            )
        ]
        late = (Tried(remedy=name, why=LATE) for name in wanted if name not in names)
        seconds = perf_counter() - self._began
        return replace(self._kept, tried=(*known, *late), seconds=seconds)

    def _player(
        self,
        stack: ExitStack,
        who: str,
        environment: Mapping[str, str],
        is_unchanged: bool = True,
        frees_threads: bool = False,
    ) -> _Player:
        """
        Start a process that ends with `stack`, and let it try remedies, or the unchanged step only.

        Raises:
            _Stopped: If a remedy hangs, or ends the process.
            CaptureError: If the test does not come to the call there, or the unchanged step fails.
            PairedError: If the process cannot be started, or ends or hangs before the call.
        """
        began = perf_counter()
        spec = Spec(who=who, environment=environment, task={"frees_threads": frees_threads})
        self._calls.announce(f"starting a process for {who}")
        [child] = stack.enter_context(children(self._calls.item, [spec], grace_s=0.0))
        self._calls.run(child, who, self._name)
        patience_s = self._start_s * _SLOWER + self._limit_s if self._start_s else None
        event = child.next_event(patience_s)
        if not isinstance(event, AtCall):
            raise self._calls.ended_early(child, spec, event)
        self._start_s = self._start_s or perf_counter() - began
        child.send(
            Try(
                profile=replace(self._call.profile, result=None),
                framework=self._call.framework,
                seconds=max(self._left_s, 0.0),
                without=tuple(one.remedy for one in (*self._kept.tried, *self._stopped)),
                is_unchanged=is_unchanged,
                environment=environment,
                limit_s=self._limit_s,
            )
        )
        event = self._watched(child)
        if not isinstance(event, Found):
            raise self._calls.ended_early(child, spec, event)
        return _Player(child, event)

    def _watched(self, child: ChildProcess) -> Any:
        """Return the next event of a process that tries remedies. Raises: as `_player`."""

        def watch() -> None:
            self._calls.announce(child.doing.text)
            free = available_bytes()
            if free is not None and free < self._least_free:
                raise MemoryError

        try:
            return child.event_within(max(self._left_s, self._limit_s), watch)
        except TimeoutError:
            how = f"was stopped after {child.doing.seconds or self._limit_s:.0f} s"
        except MemoryError:
            how = "was stopped as the memory of the machine ran short"
        except ProcessLost as error:
            how = f"ended its process with {error.status}"
        child.kill()
        doing = child.doing
        if doing.remedy in ("", UNCHANGED):  # as where the devices do not start
            raise CaptureError(f"the unchanged step {how}, in {child.label}")
        raise _Stopped(doing.remedy, how, remedies_of(doing.found))

    def _with_process(self, stack: ExitStack, own: _Player, found: Remedies) -> Remedies:
        """Try the remedies of the process, and add what they gave."""
        players: dict[str, _Player] = {}
        outputs: dict[str, str] = {}
        others: list[Tried] = []
        wanted = of_trial.suggested(self._call, of_process.REMEDIES)
        by_name = {one.name: one for one in wanted if isinstance(one, OfProcess)}
        for name, remedy in by_name.items():
            turns_s = own.found.turn_s + sum(one.found.turn_s for one in players.values())
            if self._left_s < self._start_s + 2 * own.found.turn_s + ROUNDS * turns_s:
                others.append(Tried(remedy=name, why=LATE))
                continue
            try:
                environment = remedy.environment()
                player = self._player(stack, name, environment, frees_threads=remedy.frees_threads)
                outputs[name] = self._outputs(own, player)
                players[name] = player
            except (CaptureError, PairedError, OSError) as error:
                others.append(Tried(remedy=name, why=_could_not(error)))
        measured, notes = self._measured(own, players, others)
        write = {name: remedy.write(self._call) for name, remedy in by_name.items()}
        rows = [
            replace(one, outputs=outputs[one.remedy], write=write[one.remedy]) for one in measured
        ]
        before = [one for one in found.tried if one.speedup is not None]
        return replace(
            found,
            tried=(
                *of_trial.fastest_first((*before, *rows)),
                *(one for one in found.tried if one.speedup is None),
                *others,
            ),
            notes=tuple(dict.fromkeys((*found.notes, *notes))),
        )

    def _outputs(self, own: _Player, other: _Player) -> str:
        """Return how outputs compare; a third process tells whether any two processes differ."""
        if own.found.is_random:
            return RANDOM
        expected = leaves_from_json(own.found.outputs)
        outputs = leaves_from_json(other.found.outputs)
        found = of_trial.compared(expected, outputs, own.found.spread)
        if of_trial.keeps(found) or found == RANDOM:
            return found
        if self._again is None:
            if self._left_s < self._start_s:
                return UNCOMPARED
            with ExitStack() as stack:
                self._again = self._player(stack, "the unchanged step", {}).found
        again = of_trial.compared(expected, leaves_from_json(self._again.outputs))
        return found if of_trial.keeps(again) else RANDOM

    def _measured(
        self, own: _Player, players: dict[str, _Player], others: list[Tried]
    ) -> tuple[list[Tried], tuple[str, ...]]:
        """Let processes take turns; leave out one that is lost, and begin again."""
        while players:
            left_s = max(self._left_s, 1.0)
            self._calls.announce(f"comparing {len(players)} processes, {left_s:.0f} s at most")
            turns = {UNCHANGED: own, **players}
            try:
                rounds, notes = compare_rounds(
                    {name: partial(self._turn, one) for name, one in turns.items()},
                    left_s,
                    perf_counter(),
                )
            except PairedError as error:
                # without that of the unchanged step, none of them has turns
                lost = [name for name, one in players.items() if one.child.has_ended] or players
                others += [Tried(remedy=name, why=_could_not(error)) for name in lost]
                players = {name: one for name, one in players.items() if name not in lost}
                continue
            comparison = Comparison(turns=rounds)
            measured = [
                Tried(
                    remedy=name,
                    speedup=_widened(comparison.speedup(name)),
                    step_time=comparison.step_time(name),
                )
                for name in players
            ]
            alone = format_quantity(comparison.step_time(UNCHANGED) or 0.0, SECONDS)
            beside = f"beside remedies of the process the unchanged step takes {alone}"
            return measured, (*of_trial.without_those_of_comparisons(notes), beside)
        return [], ()

    def _turn(self, player: _Player) -> float:
        return player.turn(self._limit_s)


def _widened(ratio: Ratio) -> Ratio:
    """Return a ratio of two processes, whose interval covers how two of the same code differ."""
    found = ratio.interval
    if found is None:
        return ratio
    factor = math.exp(_QUANTILE * constant_spread(pinned=False).sd)
    return replace(ratio, interval=replace(found, low=found.low / factor, high=found.high * factor))


def _could_not(error: Exception) -> str:
    return f"could not be tried: {of_trial.sentence(error)}"
