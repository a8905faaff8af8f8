"""Let two processes of the same code take turns, to see how much they differ."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_tfperf.baseline.structure import stored
from pytest_tfperf.doctor.stored_times import StoredChange, stored_changes
from pytest_tfperf.errors import PairedError
from pytest_tfperf.machine.conditions import Conditions, read_cpu, remarks
from pytest_tfperf.machine.cores import pinned, usable_cores
from pytest_tfperf.metric_registry import MACHINE
from pytest_tfperf.stats.detectable_change import (
    Noise,
    Resolution,
    needed_tolerance,
    noise_of,
    resolution,
)
from pytest_tfperf.stats.process_spread import (
    constant_spread,
    for_other_tests,
    process_spread,
    residuals,
)
from pytest_tfperf.stats.sequential import StoppingRule, pair_estimate, planned_pairs
from pytest_tfperf.turns.children import running
from pytest_tfperf.turns.cleanup import Cleanup
from pytest_tfperf.turns.messages import Task
from pytest_tfperf.turns.paired_test import (
    PairedTurns,
    ReadyPair,
    TurnTime,
    run_paired_test,
    run_turns,
)
from pytest_tfperf.turns.pytest_child import SAME_ENVIRONMENT, ChildProcess, PytestRun
from pytest_tfperf.turns.spread_store import store_residuals, stored_residuals
from pytest_tfperf.values import Json, Unknown

TOLERANCES = (0.01, 0.02, 0.05)
BUDGET_S = 30.0
"""Seconds of turns that resolutions are given for: the default of --tfperf-budget."""
_SHOWN = 500  # characters of a failure
_FILE, _TEST = "test_doctor.py", "test_step"
_TEST_FILE = f"""\
from pytest_tfperf.doctor.checks import convolution_step


def {_TEST}(tf_profile):
    tf_profile(convolution_step("{{}}"), warmup=10, steps=20, trace_steps=2)
"""
Say = Callable[[str, "float | None"], None]
"""Called when a phase begins: its name, and the seconds that it takes if that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SameCodeTurns:
    """Turns of two processes of the same code."""

    pinned: bool
    """True if the processes were pinned to cores."""
    noise: Noise | Unknown
    """Noise of the turns, or why there were none."""
    resolutions: Mapping[float, Resolution | None] = field(default_factory=dict)
    """What can be resolved, by tolerance; None with too few turns."""
    needed: float | None = None
    """The tolerance that the same code passes; None with too few turns."""
    remarks: Sequence[str] = ()
    """Interference that was noticed meanwhile."""
    stored: Sequence[StoredChange] = ()
    """What five stored runs like those of the two processes would show, the clock first."""

    @property
    def label(self) -> str:
        """Name of the kind of turns."""
        return "pinned" if self.pinned else "any core"


def same_code_turns(
    framework: str, cores: Sequence[int], seconds: float, cleanup: Cleanup, say: Say
) -> SameCodeTurns:
    """Run turns of two processes of the same code; the first core is for this process."""
    constant = constant_spread(bool(cores))
    process_sd = process_spread(constant, stored_residuals(cores[1:]), ()).sd
    before = _conditions()
    try:
        turns, runs = _run_turns(framework, cores, seconds, cleanup, say)
    except PairedError as error:
        return SameCodeTurns(pinned=bool(cores), noise=Unknown(str(error)))
    found = residuals([pair_estimate(turns.log_ratios)], constant, ratio=1.0)
    store_residuals(for_other_tests(found, constant), cores[1:])
    noise = noise_of(turns.pairs, turns.spent_s, process_sd)
    rules = [
        StoppingRule(
            tolerance=tolerance,
            n_tests=1,
            process_sd=process_sd,
            n_pairs=planned_pairs(BUDGET_S),
        )
        for tolerance in TOLERANCES
    ]
    return SameCodeTurns(
        pinned=bool(cores),
        noise=noise,
        remarks=remarks(before, _conditions()),
        resolutions={rule.tolerance: resolution(noise, rule, BUDGET_S) for rule in rules},
        needed=needed_tolerance(noise, rules[0], BUDGET_S),
        stored=stored_changes(runs, process_sd, len(usable_cores())),
    )


def _conditions() -> Conditions:
    """Return the conditions between turns, when idle cores have no clocks that matter."""
    return replace(read_cpu(), clock_mhz=None)


def _run_turns(
    framework: str, cores: Sequence[int], seconds: float, cleanup: Cleanup, say: Say
) -> tuple[PairedTurns, list[Json]]:
    """Run the turns, and return with them what a timing file would have of each process."""
    time = TurnTime(seconds=seconds, most_s=seconds)
    folder = _suite(cleanup.folder / "step", framework)
    kind = "pinned" if cores else "on any core"
    say(f"starting two processes {kind}", None)
    # both collect at the same time: one that starts well before the other is slower
    runs = [
        _pytest_run(label, folder, cores[1:])
        for label in ("the first process", "the second process")
    ]
    test = f"{_FILE}::{_TEST}"
    with running(runs, test, cleanup, grace_s=0.0) as (first, second):

        def take_turns(ready: ReadyPair) -> PairedTurns:
            say(f"comparing two processes of the same code {kind}", seconds)
            return run_turns(first, second, ready, time, lambda _: False)

        with pinned(cores[:1]):
            paired = run_paired_test(first, second, test, (None, None), take_turns)
        if isinstance(paired.ref_profiles, Unknown):
            raise PairedError(paired.ref_profiles.why)
        turns = paired.turns.get("")
        if turns is None or not turns.pairs:
            failed = _failure([first, second])
            raise PairedError(f"the profile of the step ended without turns{failed}")
        profiles = (*(paired.tree_profiles or ()), *(paired.ref_profiles or ()))
        return turns, [stored(profile, MACHINE) for profile in profiles]


def _suite(folder: Path, framework: str) -> Path:
    """Write the test of the step, and return its folder."""
    folder.mkdir(exist_ok=True)
    (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
    (folder / _FILE).write_text(_TEST_FILE.format(framework), "utf-8")
    return folder


def _pytest_run(label: str, folder: Path, cores: Sequence[int]) -> PytestRun:
    """Return a run of the step's test, without plugins but ours."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")
    }
    own = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PWD": str(folder),
        "TMPDIR": str(folder),
    }
    return PytestRun(
        label=label,
        task=Task(root=str(folder), files=[_FILE], argv=sys.argv),
        path=sys.path,
        arguments=["-q", "-p", "tfperf", "-p", "no:cacheprovider"],
        folder=folder,
        environment={**kept, **SAME_ENVIRONMENT, **own},
        cores=cores,
    )


def _failure(children: Sequence[ChildProcess]) -> str:
    """Return the end of the first failure of the step's test."""
    for child in children:
        for report in child.reports:
            if report["outcome"] == "failed":
                return f": {str(report['longrepr'])[-_SHOWN:]}"
    return ""
