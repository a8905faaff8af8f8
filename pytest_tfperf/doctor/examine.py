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

from pytest_tfperf.child.cleanup import Janitor
from pytest_tfperf.child.process import ALIKE, Player
from pytest_tfperf.child.server import PLUGIN
from pytest_tfperf.doctor.profiler_check import SelfCheck, check_traces, reads_admin_only
from pytest_tfperf.doctor.sample_steps import convolution_step, record_steps, refuses_second
from pytest_tfperf.doctor.sections import (
    Section,
    Turns,
    machine_noise_section,
    machine_section,
    noise_section,
    profiler_section,
    resolution_section,
)
from pytest_tfperf.errors import CaptureError, PairedError, TraceError
from pytest_tfperf.machine.conditions import Conditions, conditions_noted, read_conditions, remarks
from pytest_tfperf.machine.cores import can_pin, can_stop, pinned
from pytest_tfperf.machine.description import describe
from pytest_tfperf.paired.coordinator import Turns as Played
from pytest_tfperf.paired.coordinator import run_match, take_turns
from pytest_tfperf.stats.detectable_change import needed_tolerance, noise_of, resolution
from pytest_tfperf.stats.sequential_test import PINNED_PROCESS_SD, UNPINNED_PROCESS_SD, StoppingRule
from pytest_tfperf.tf_runtime import load_tensorflow, sync_devices

TOLERANCES = (0.01, 0.02, 0.05)
BUDGET_S = 30.0
"""Of turns, for which it says what can be resolved: the default of --tfperf-budget."""
_N_STEPS = 5  # of a session of the self-check
_WATCHED_S = 2.0  # of steps, while the rest of the machine is watched
_DRIVER = Path("/proc/driver/nvidia/params")
_SHOWN = 500  # characters
_FILE, _TEST = "test_doctor.py", "test_step"
_TEST_FILE = f"""\
from pytest_tfperf.capture.self_check import convolution_step


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
    os.environ |= ALIKE  # above all, leave GPU memory to the processes that take turns
    load = _load()
    load_tensorflow()
    environment = describe()
    yield machine_section(environment)
    with closing(Janitor()) as janitor:
        yield profiler_section(
            _profiler_checks(janitor.folder, environment["machine"]["accelerators"])
        )
        cores = _cores()
        stops, pins = can_stop(), can_pin(cores)
        yield machine_noise_section(load, _remarks(_WATCHED_S), _WATCHED_S, stops, pins)
        kinds = (
            [
                _turns(cores if pinned_ else (), seconds, janitor)
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


def _turns(cores: Sequence[int], seconds: float, janitor: Janitor) -> Turns:
    """Turns of two fresh processes of the same code: pinned to all but the first of these cores, or without any on any core."""
    process_sd = PINNED_PROCESS_SD if cores else UNPINNED_PROCESS_SD
    before = _reading()
    try:
        played = _play(cores, seconds, janitor)
    except PairedError as error:
        return Turns(pinned=bool(cores), why=str(error), failed=True)
    noise = noise_of(played.played, played.spent_s, process_sd)
    rules = {
        tolerance: StoppingRule(tolerance=tolerance, n_tests=1, process_sd=process_sd)
        for tolerance in TOLERANCES
    }
    return Turns(
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


def _play(cores: Sequence[int], seconds: float, janitor: Janitor) -> Played:
    """
    Turns of two fresh processes.

    Raises:
        PairedError: If they could not be taken.
    """
    players: list[Player] = []
    folder = _suite(janitor.folder / "step")
    try:
        for label in ("the first process", "the second process"):
            players.append(_player(label, folder, cores[1:], janitor))
        for player in (
            players
        ):  # which collect at the same time: one that starts well before the other is slower
            player.await_collected()
        one, other = players
        with pinned(cores[:1]):
            match = run_match(
                one,
                other,
                f"{_FILE}::{_TEST}",
                (None, None),
                lambda opening: take_turns(one, other, opening, seconds, _never),
            )
        played = match.turns.get("")
        if played is None or not played.played:
            raise PairedError(
                match.lost or f"the profile of the step ended without turns{_failures(players)}"
            )
        return played
    finally:
        for player in players:
            player.kill()


def _suite(folder: Path) -> Path:
    """The folder with the step's test in it."""
    folder.mkdir(exist_ok=True)
    (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
    (folder / _FILE).write_text(_TEST_FILE, "utf-8")
    return folder


def _player(label: str, folder: Path, cores: Sequence[int], janitor: Janitor) -> Player:
    """A process that collects the step's test, without plugins but ours."""
    given = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")
    }
    environment = {
        **given,
        **ALIKE,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PWD": str(folder),
        "TMPDIR": str(folder),
    }
    arguments = ["-q", "-p", "tfperf", "-p", PLUGIN, "-p", "no:cacheprovider"]
    player = Player(
        label,
        lambda fd: [sys.executable, "-m", "pytest", *arguments, f"--tfperf-side={fd}"],
        folder,
        environment,
        cores,
        janitor,
    )
    try:
        player.say(
            root=str(folder),
            files=[_FILE],
            basetemp=None,
            argv=sys.argv[:1],
            tree=None,
            scratch=str(janitor.folder),
        )
    except BaseException:
        player.kill()
        raise
    return player


def _failures(players: Sequence[Player]) -> str:
    """The end of what the step's test has said where it failed."""
    texts = [
        str(report["longrepr"])
        for player in players
        for report in player.reports
        if report["outcome"] == "failed"
    ]
    return "".join(f": {text[-_SHOWN:]}" for text in texts[:1])


def _never(_: Sequence[float]) -> bool:
    return False


def _cores() -> Sequence[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else ()


def _load() -> tuple[float, int] | None:
    """The load average of the last minute, where there is one, and the cores."""
    try:
        return os.getloadavg()[0], len(_cores()) or os.cpu_count() or 1
    except (OSError, AttributeError):
        return None
