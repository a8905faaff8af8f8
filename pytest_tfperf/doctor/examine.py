"""`tfperf doctor`: whether this machine can profile and compare, how noisy it is now, and the change that it can resolve."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_tfperf.child.cleanup import Cleanup
from pytest_tfperf.child.command import SAME_ENVIRONMENT, PytestRun, start_pytest
from pytest_tfperf.child.process import ChildProcess
from pytest_tfperf.doctor.profiler_check import SelfCheck, check_traces, reads_admin_only
from pytest_tfperf.doctor.sample_steps import convolution_step, record_steps, refuses_second
from pytest_tfperf.doctor.sections import (
    SameCodeTurns,
    Section,
    machine_noise_section,
    machine_section,
    noise_section,
    profiler_section,
    resolution_section,
)
from pytest_tfperf.errors import CaptureError, PairedError, TraceError
from pytest_tfperf.machine.conditions import Conditions, read_conditions
from pytest_tfperf.machine.cores import (
    can_pin,
    can_stop,
    load_average,
    pinnable_cores,
    pinned,
    usable_cores,
)
from pytest_tfperf.machine.description import describe
from pytest_tfperf.machine.interference import conditions_noted, remarks
from pytest_tfperf.paired.coordinator import PairedTurns, run_paired_test, run_turns
from pytest_tfperf.stats.detectable_change import needed_tolerance, noise_of, resolution
from pytest_tfperf.stats.sequential_test import PINNED_PROCESS_SD, UNPINNED_PROCESS_SD, StoppingRule
from pytest_tfperf.tf_runtime import load_tensorflow, sync_devices
from pytest_tfperf.values import Unknown

TOLERANCES = (0.01, 0.02, 0.05)
BUDGET_S = 30.0
"""Of turns, for which it says what can be resolved: the default of --tfperf-budget."""
_N_STEPS = 5  # of a session of the self-check
_WATCHED_S = 2.0  # of steps, while the rest of the machine is watched
_DRIVER = Path("/proc/driver/nvidia/params")
_SHOWN = 500  # characters
_FILE, _TEST = "test_doctor.py", "test_step"
_TEST_FILE = f"""\
from pytest_tfperf.doctor.sample_steps import convolution_step


def {_TEST}(tf_profile):
    tf_profile(convolution_step(), warmup=10, steps=20, trace_steps=2)
"""


def examine(seconds: float) -> Iterator[Section]:
    """
    What is found, a section at a time.

    Args:
        seconds: Of turns, for each pair of processes.

    Raises:
        CaptureError: If TensorFlow cannot be imported.
    """
    os.environ.setdefault(
        "TF_CPP_MIN_LOG_LEVEL", "1"
    )  # without TensorFlow's notes; its warnings may say what is wrong
    os.environ |= SAME_ENVIRONMENT  # above all, leave GPU memory to the processes that take turns
    load = _load()
    load_tensorflow()
    environment = describe()
    yield machine_section(environment)
    with closing(Cleanup()) as cleanup:
        yield profiler_section(
            _profiler_checks(cleanup.folder, environment["machine"]["accelerators"])
        )
        cores = pinnable_cores()
        stops, pins = can_stop(), can_pin(cores)
        yield machine_noise_section(load, _remarks(_WATCHED_S), _WATCHED_S, stops, pins)
        kinds = (
            [
                _turns(cores if pinned_ else (), seconds, cleanup)
                for pinned_ in (True, False)
                if pins or not pinned_
            ]
            if stops
            else []
        )
    if kinds:
        yield noise_section(kinds)
        yield resolution_section(kinds, BUDGET_S)


def _profiler_checks(folder: Path, accelerators: str) -> Sequence[SelfCheck]:
    n_devices = 0 if accelerators == "none" else len(accelerators.split(", "))
    try:
        step = convolution_step()
        step()
        traces = [record_steps(step, _N_STEPS, folder) for _ in range(2)]
        refuses = refuses_second(folder)
    except (CaptureError, TraceError) as error:
        return (
            SelfCheck(
                name="session",
                passed=False,
                found=str(error),
                advice="a profiler session must start and write its trace",
            ),
        )
    second = SelfCheck(
        name="second session",
        passed=refuses,
        found="refused while another runs" if refuses else "starts while another runs",
        advice=""
        if refuses
        else "stop profilers of your own before a step is profiled; this TensorFlow does not tell of them",
    )
    return (*check_traces(traces, _N_STEPS, n_devices, _admin_only()), second)


def _admin_only() -> bool | None:
    try:
        return reads_admin_only(_DRIVER.read_text("utf-8", errors="replace"))
    except OSError:
        return None


def _remarks(seconds: float) -> Sequence[str]:
    """What the machine does besides while steps run in this process; the first of them are not counted."""
    notes: list[str] = []
    step = convolution_step()
    _run_for(step, seconds / 4)
    with conditions_noted(notes):
        _run_for(step, seconds)
    return notes


def _run_for(step: Callable[[], Any], seconds: float) -> None:
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        step()
    sync_devices()


def _turns(cores: Sequence[int], seconds: float, cleanup: Cleanup) -> SameCodeTurns:
    """Turns of two fresh processes of the same code: pinned to all but the first of these cores, or without any on any core."""
    process_sd = PINNED_PROCESS_SD if cores else UNPINNED_PROCESS_SD
    before = _reading()
    try:
        turns = _run_turns(cores, seconds, cleanup)
    except PairedError as error:
        return SameCodeTurns(pinned=bool(cores), why=str(error), failed=True)
    noise = noise_of(turns.pairs, turns.spent_s, process_sd)
    rules = {
        tolerance: StoppingRule(tolerance=tolerance, n_tests=1, process_sd=process_sd)
        for tolerance in TOLERANCES
    }
    return SameCodeTurns(
        pinned=bool(cores),
        noise=noise,
        remarks=remarks(before, _reading()),
        resolutions={
            tolerance: resolution(noise, rule, BUDGET_S) for tolerance, rule in rules.items()
        },
        needed=needed_tolerance(noise, rules[TOLERANCES[0]], BUDGET_S),
    )


def _reading() -> Conditions:
    """The conditions between turns, when cores and GPUs idle: their clocks say nothing."""
    return replace(read_conditions(), clock_mhz=None, gpus=())


def _run_turns(cores: Sequence[int], seconds: float, cleanup: Cleanup) -> PairedTurns:
    """
    Run turns of two fresh processes.

    Raises:
        PairedError: If that fails.
    """
    children: list[ChildProcess] = []
    folder = _suite(cleanup.folder / "step")
    try:
        # both collect at the same time: one that starts well before the other is slower
        for label in ("the first process", "the second process"):
            children.append(start_pytest(_pytest_run(label, folder, cores[1:]), cleanup))
        for child in children:
            child.await_collected()
        first, second = children
        with pinned(cores[:1]):
            paired = run_paired_test(
                first,
                second,
                f"{_FILE}::{_TEST}",
                (None, None),
                lambda ready: run_turns(first, second, ready, seconds, lambda _: False),
            )
        turns = paired.turns.get("")
        if turns is None or not turns.pairs:
            lost = paired.ref_profiles
            raise PairedError(
                lost.why
                if isinstance(lost, Unknown)
                else f"the profile of the step ended without turns{_failures(children)}"
            )
        return turns
    finally:
        for child in children:
            child.kill()


def _suite(folder: Path) -> Path:
    """The folder with the step's test in it."""
    folder.mkdir(exist_ok=True)
    (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
    (folder / _FILE).write_text(_TEST_FILE, "utf-8")
    return folder


def _pytest_run(label: str, folder: Path, cores: Sequence[int]) -> PytestRun:
    """Return a run of the step's test, without plugins but ours."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")
    }
    return PytestRun(
        label=label,
        root=folder,
        files=[_FILE],
        path=sys.path,
        arguments=["-q", "-p", "tfperf", "-p", "no:cacheprovider"],
        folder=folder,
        environment={
            **kept,
            **SAME_ENVIRONMENT,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PWD": str(folder),
            "TMPDIR": str(folder),
        },
        options={},
        cores=cores,
    )


def _failures(children: Sequence[ChildProcess]) -> str:
    """The end of what the step's test has said where it failed."""
    texts = [
        str(report["longrepr"])
        for child in children
        for report in child.reports
        if report["outcome"] == "failed"
    ]
    return "".join(f": {text[-_SHOWN:]}" for text in texts[:1])


def _load() -> tuple[float, int] | None:
    """Return the load average of the last minute, where there is one, and the cores."""
    load = load_average()
    return None if load is None else (load, len(usable_cores()))
