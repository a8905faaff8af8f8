"""
Compare variants with data, each in a process of its own.

A variant's process runs the same test again, up to this call of `compare`. This process is the
coordinator.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from time import perf_counter
from typing import TypeVar

import pytest

from pytest_tfperf.checks.limits import SHARED_CPU
from pytest_tfperf.errors import CaptureError
from pytest_tfperf.frameworks.in_use import takes_whole_gpus
from pytest_tfperf.machine.cores import format_cores, pinned, split_cores
from pytest_tfperf.machine.locks import Exclusive
from pytest_tfperf.results import Profile
from pytest_tfperf.turn import TURNS_WITH, Ready
from pytest_tfperf.turns.children import Calls, Replay, Spec, children
from pytest_tfperf.turns.messages import Answer, AtProfile, Measured
from pytest_tfperf.turns.pytest_child import ChildProcess
from pytest_tfperf.turns.rounds import NoMoreSteps, run_turn, turn_size
from pytest_tfperf.variants.comparison import BARE, Comparison, ComparisonCall
from pytest_tfperf.variants.outputs import check_outputs, leaves_from_json, leaves_to_json
from pytest_tfperf.variants.rounds import SECONDS, RoundTimes, compare_rounds

__tracebackhide__ = True

Event = TypeVar("Event", AtProfile, Measured)
# TensorFlow has as many threads as cores: on one core a pipeline is not what it is elsewhere
_LEAST_CORES = 2
_WHOLE_GPU = (
    "compare with data runs variants in processes of their own, and TensorFlow gives this process "
    "all memory of the GPU: set TF_FORCE_GPU_ALLOW_GROWTH=true"
)


def can_start_processes() -> bool:
    """Return whether this system can stop processes and let them go on."""
    return hasattr(signal, "SIGSTOP") and hasattr(os, "killpg")


class VariantProcesses:
    """
    Runs the variants of one test's calls of `compare`.

    Args:
        item: The test.
        shares_cpu: Returns whether workers of xdist use the same CPU.
        announce: Shows what runs.
        exclusive: Keeps other processes from measuring meanwhile.
    """

    def __init__(
        self,
        item: pytest.Item,
        shares_cpu: Callable[[], bool],
        announce: Callable[[str], None],
        exclusive: Exclusive,
    ) -> None:
        self._calls = Calls(item, "compare", announce, exclusive)
        self._shares_cpu = shares_cpu
        self._coordinator_cores, self._cores = split_cores(_LEAST_CORES)

    def __call__(self, call: ComparisonCall) -> Comparison:
        """Compare the variants of one call."""
        if takes_whole_gpus():
            raise CaptureError(_WHOLE_GPU)
        return _comparison(self._calls.answered(lambda: self._compared(call)))

    def _compared(self, call: ComparisonCall) -> Answer:
        names = ", ".join(call.profiles)
        self._calls.announce(f"comparing {names}: starting a process for each")
        specs = {
            variant: Spec(
                who=f"variant {variant!r}",
                environment=call.environments.get(variant, {}),
                changes={"cores": self._cores},
            )
            for variant in call.profiles
        }
        with children(self._calls.item, list(specs.values())) as started:
            processes = dict(zip(specs, started, strict=True))

            def event_of(variant: str, kind: type[Event]) -> Event:
                child = processes[variant]
                event = child.next_event()
                if not isinstance(event, kind):
                    raise self._calls.ended_early(child, specs[variant], event)
                return event

            readies = {}
            for variant, child in processes.items():
                self._calls.run(child, variant, call.profiles[variant])
                readies[variant] = event_of(variant, AtProfile).ready
            self._calls.announce(f"comparing {names}, about {min(SECONDS, call.max_seconds):.0f} s")
            turns, notes = self._turns(processes, readies, call.max_seconds)
            events = {}
            for variant, child in processes.items():
                child.end_turns()
                events[variant] = event_of(variant, Measured)
        if not any(turns.values()):
            raise CaptureError(f"not one round of turns was run: {notes[0]}")
        notes = (*self._notes(readies), *notes)
        if call.tolerance is not None:
            leaves = {variant: leaves_from_json(one.outputs) for variant, one in events.items()}
            notes += check_outputs(leaves, call.tolerance)
        profiles = {
            variant: _with_others(one.profile, variant, events) for variant, one in events.items()
        }
        return Answer(turns=turns, profiles=profiles, notes=notes)

    def _turns(
        self,
        children: Mapping[str, ChildProcess],
        readies: Mapping[str, Ready],
        max_seconds: float,
    ) -> RoundTimes:
        with pinned(self._coordinator_cores):
            turns = {
                variant: _turn_of(child, variant, readies[variant])
                for variant, child in children.items()
            }
            return compare_rounds(turns, max_seconds, perf_counter())

    def _notes(self, readies: Mapping[str, Ready]) -> tuple[str, ...]:
        """Return where the variants ran, and what makes their steps differ."""
        where = format_cores(self._cores) if self._cores else "any core"
        notes = [f"each variant ran in a process of its own, on {where}"]
        batches = {
            variant: ready.workload.get("batch")
            for variant, ready in readies.items()
            if not variant.endswith(BARE)  # it is given one batch of the other variant
        }
        if len(set(batches.values())) > 1:
            sizes = ", ".join(
                f"{'unknown' if batch is None else batch} of {variant}"
                for variant, batch in batches.items()
            )
            notes.append(
                f"batch sizes differ ({sizes}), so that a step is not the same work: "
                "compare throughput"
            )
        return (*notes, SHARED_CPU) if self._shares_cpu() else tuple(notes)


def compare_here(replay: Replay, call: ComparisonCall) -> Comparison:
    """Answer a call in a variant's process; the one that it is for does not return."""
    answer = replay.earlier(call.profiles)
    if answer is None:
        profile, leaves = call.measure(replay.part.name)
        sent = replace(profile, result=None)
        replay.end(Measured(profile=sent, outputs=leaves_to_json(leaves)))
    return _comparison(answer)


def _turn_of(child: ChildProcess, variant: str, ready: Ready) -> Callable[[], float]:
    """Return what runs a turn of a variant."""
    chance = random.SystemRandom()

    def run() -> float:
        try:
            return run_turn(child, turn_size([ready], chance), ready)
        except NoMoreSteps:
            raise NoMoreSteps(
                f"the data of {variant} ended within a turn, and cannot be started again"
            ) from None

    return run


def _with_others(profile: Profile, variant: str, variants: Iterable[str]) -> Profile:
    """Return the profile with the names of the variants that it took turns with."""
    value = profile.value("step_time")
    others = [name for name in variants if name != variant]
    step_time = value.changed(detail={**value.detail, TURNS_WITH: others})
    return replace(profile, metrics={**profile.metrics, "step_time": step_time})


def _comparison(answer: Answer) -> Comparison:
    return Comparison(turns=answer.turns, profiles=answer.profiles, notes=answer.notes)
