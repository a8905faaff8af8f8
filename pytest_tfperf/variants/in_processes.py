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
from typing import Any

import pytest

from pytest_tfperf.checks.limits import SHARED_CPU
from pytest_tfperf.child.cleanup import Cleanup
from pytest_tfperf.child.process import ChildProcess
from pytest_tfperf.child.same_test import SameTest
from pytest_tfperf.child.server import CoordinatedServer
from pytest_tfperf.child.turn_runner import StepsExhausted, run_turn, turn_size
from pytest_tfperf.errors import CaptureError, PairedError
from pytest_tfperf.frameworks.in_use import takes_whole_gpus
from pytest_tfperf.machine.cores import format_cores, pinned, split_cores
from pytest_tfperf.machine.locks import Exclusive
from pytest_tfperf.results import Profile
from pytest_tfperf.turns import TURNS_WITH, Ready
from pytest_tfperf.values import Json
from pytest_tfperf.variants.comparison import BARE, Comparison, ComparisonCall
from pytest_tfperf.variants.outputs import check_outputs, leaves_from_json, leaves_to_json
from pytest_tfperf.variants.rounds import SECONDS, NoMoreSteps, RoundTimes, run_rounds

__tracebackhide__ = True

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
    Runs the variants of one test's calls of `compare`; see `comparison.CompareInProcesses`.

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
        self._test, self._shares_cpu = SameTest(item, "compare"), shares_cpu
        self._announce, self._exclusive = announce, exclusive
        self._coordinator_cores, self._cores = split_cores(_LEAST_CORES)
        self._earlier: list[Json] = []

    def __call__(self, call: ComparisonCall) -> Comparison:
        """Compare the variants of one call."""
        if takes_whole_gpus():
            raise CaptureError(_WHOLE_GPU)
        try:
            with self._exclusive(self._announce):  # for all processes, of which one runs at a time
                comparison = self._with_processes(call)
        except (CaptureError, AssertionError) as error:  # the test may expect it, and go on
            self._earlier.append({"error": type(error).__name__, "message": str(error)})
            raise
        self._earlier.append(_to_json(comparison))
        return comparison

    def _with_processes(self, call: ComparisonCall) -> Comparison:
        cleanup, children = Cleanup(), dict[str, ChildProcess]()
        try:
            return self._compared(call, cleanup, children)
        except PairedError as error:
            raise CaptureError(str(error)) from None
        # plugins for time limits raise the last
        except (KeyboardInterrupt, pytest.exit.Exception, pytest.fail.Exception):
            for child in children.values():
                child.kill()
            raise
        finally:
            for child in children.values():
                child.close()
            cleanup.close()
            self._announce("")

    def _compared(
        self, call: ComparisonCall, cleanup: Cleanup, children: dict[str, ChildProcess]
    ) -> Comparison:
        """Compare the variants; `children` gets a process for each."""
        names = ", ".join(call.profiles)
        self._announce(f"comparing {names}: starting a process for each")
        for variant in call.profiles:
            children[variant] = self._test.start(
                _who(variant), cleanup, call.environments.get(variant, {}), cores=self._cores
            )
        for child in children.values():
            self._test.await_collected(child)
        readies = {
            variant: self._ready(child, variant, call.profiles[variant])
            for variant, child in children.items()
        }
        self._announce(f"comparing {names}, about {min(SECONDS, call.max_seconds):.0f} s")
        turns, notes = self._turns(children, readies, call.max_seconds)
        events = {variant: self._profiled(child, variant) for variant, child in children.items()}
        if not any(turns.values()):
            raise CaptureError(f"not one round of turns was run: {notes[0]}")
        notes = (*self._notes(readies), *notes)
        if call.tolerance is not None:
            leaves = {
                variant: leaves_from_json(event["outputs"]) for variant, event in events.items()
            }
            notes += check_outputs(leaves, call.tolerance)
        profiles = {
            variant: _with_others(Profile.from_json(event["profiled"]), variant, events)
            for variant, event in events.items()
        }
        return Comparison(turns=turns, profiles=profiles, notes=notes)

    def _ready(self, child: ChildProcess, variant: str, profile: str) -> Ready:
        """Let a process run the test until the variant's profile can be timed."""
        part = {"variant": variant, "profile": profile, "earlier": self._earlier}
        child.run(self._test.key, None, part)
        event = child.next_event()
        if "ready" not in event:
            raise self._test.failed(child, _who(variant), event)
        return Ready(**event["ready"])

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
            return run_rounds(turns, max_seconds, perf_counter())

    def _profiled(self, child: ChildProcess, variant: str) -> dict[str, Any]:
        """Return the event of a process whose profile is complete."""
        child.end_turns()
        event = child.next_event()
        if "profiled" not in event:
            raise self._test.failed(child, _who(variant), event)
        return event

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


class VariantClient:
    """
    Answers calls of `compare` in a variant's process, up to the one that the process is for.

    See `comparison.CompareInProcesses`.
    """

    def __init__(self, server: CoordinatedServer, part: Mapping[str, Any]) -> None:
        self._server, self._variant, self._profile = server, part["variant"], part["profile"]
        self._earlier = list(part["earlier"])

    def __call__(self, call: ComparisonCall) -> Comparison:
        """Answer a call; the one that the process is for does not return."""
        if self._earlier:
            return _from_json(self._earlier.pop(0))
        if call.profiles.get(self._variant) != self._profile:
            others = ", ".join(call.profiles.values())
            raise CaptureError(
                f"run again, this call of compare has other variants: {others} "
                f"and no {self._profile}"
            )
        profile, leaves = call.measure(self._variant)
        self._server.ask(profiled=profile.to_json(), outputs=leaves_to_json(leaves))
        pytest.exit("this process has done its work")


def _who(variant: str) -> str:
    return f"variant {variant!r}"


def _turn_of(child: ChildProcess, variant: str, ready: Ready) -> Callable[[], float]:
    """Return what runs a turn of a variant."""
    chance = random.SystemRandom()

    def run() -> float:
        try:
            return run_turn(child, turn_size([ready], chance), ready)
        except StepsExhausted:
            raise NoMoreSteps(
                f"the data of {variant} ended within a turn, and cannot be started again"
            ) from None

    return run


def _with_others(profile: Profile, variant: str, variants: Iterable[str]) -> Profile:
    """Return the profile with the names of the variants that it took turns with."""
    value = profile.value("step_time")
    others = [name for name in variants if name != variant]
    step_time = replace(value, detail={**value.detail, TURNS_WITH: others})
    return replace(profile, metrics={**profile.metrics, "step_time": step_time})


def _to_json(comparison: Comparison) -> Json:
    return {
        "turns": {variant: list(turns) for variant, turns in comparison.turns.items()},
        "profiles": {
            variant: profile.to_json() for variant, profile in comparison.profiles.items()
        },
        "notes": list(comparison.notes),
    }


def _from_json(data: Json) -> Comparison:
    """Return the result of an earlier call, or raise its error."""
    if "error" in data:
        errors = {error.__name__: error for error in (CaptureError, AssertionError)}
        raise errors[data["error"]](data["message"])
    return Comparison(
        turns={variant: tuple(turns) for variant, turns in data["turns"].items()},
        profiles={
            variant: Profile.from_json(profile) for variant, profile in data["profiles"].items()
        },
        notes=tuple(data["notes"]),
    )
