"""`tfperf doctor`: whether this machine can profile and compare, and how well."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pytest_tfperf.doctor.fitness import fitness_section
from pytest_tfperf.doctor.profiler_check import SelfCheck, check_traces, reads_admin_only
from pytest_tfperf.doctor.same_code import BUDGET_S, Say, same_code_turns
from pytest_tfperf.doctor.sample_steps import convolution_step, record_steps, refuses_second
from pytest_tfperf.doctor.sections import (
    MachineConditions,
    Section,
    conditions_section,
    machine_section,
    profiler_section,
)
from pytest_tfperf.doctor.turn_sections import noise_section, resolution_section
from pytest_tfperf.errors import CaptureError, TraceError
from pytest_tfperf.frameworks.framework import Framework
from pytest_tfperf.frameworks.in_use import load_installed, synchronise
from pytest_tfperf.machine.conditions import conditions_noted
from pytest_tfperf.machine.cores import (
    can_pin,
    can_stop,
    load_average,
    pinnable_cores,
    usable_cores,
)
from pytest_tfperf.machine.description import describe
from pytest_tfperf.turns.cleanup import Cleanup
from pytest_tfperf.turns.pytest_child import SAME_ENVIRONMENT

_N_STEPS = 5  # of a session of the profiler check
_WATCHED_S = 2.0  # of steps, while the rest of the machine is watched
_WARM_UP = 0.25  # of that time
_EXCLUSIVE = "exclusive profiler session"
_DRIVER = Path("/proc/driver/nvidia/params")


def examine(seconds: float, say: Say) -> Iterator[Section]:
    """
    Yield the sections as they are found, and the conclusion last.

    Args:
        seconds: Time for the turns of each pair of processes.
        say: Called when a phase begins.

    Raises:
        CaptureError: If neither TensorFlow nor JAX can be imported.
    """
    # warnings of TensorFlow may say what is wrong, its notes do not
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    os.environ |= SAME_ENVIRONMENT  # leaves GPU memory to the processes that take turns
    load = load_average()
    say("starting TensorFlow and JAX, as far as they are installed", None)
    frameworks, refused = load_installed()
    first, *more = frameworks
    also = {one.name: f"{one.version()}: its profiler is checked too" for one in more}
    yield machine_section(describe((first,)), {**also, **refused})
    with closing(Cleanup()) as cleanup:
        checks: list[SelfCheck] = []
        for framework in frameworks:
            say(f"checking the profiler of {framework.name}", None)
            checks += _profiler_checks(framework, cleanup.folder)
        profiler = profiler_section(checks)
        yield profiler
        cores = pinnable_cores()
        say("watching for interference", _WATCHED_S * (1 + _WARM_UP))
        conditions = MachineConditions(
            load=None if load is None else (load, len(usable_cores())),
            remarks=_remarks(first.name, _WATCHED_S),
            watched_s=_WATCHED_S,
            can_stop=can_stop(),
            can_pin=can_pin(cores),
        )
        yield conditions_section(conditions)
        if not conditions.can_stop:
            yield fitness_section(profiler, (), BUDGET_S)
            return
        choices = (cores, ()) if conditions.can_pin else ((),)
        kinds = [same_code_turns(first.name, choice, seconds, cleanup, say) for choice in choices]
    yield noise_section(kinds)
    yield resolution_section(kinds, BUDGET_S)
    yield fitness_section(profiler, kinds, BUDGET_S)


def _profiler_checks(framework: Framework, folder: Path) -> Sequence[SelfCheck]:
    """Return the checks of two short sessions of a framework's profiler."""
    name = framework.name
    try:
        step = convolution_step(name)
        step()
        traces = [record_steps(name, step, _N_STEPS, folder) for _ in range(2)]
        refuses = refuses_second(folder)
    except (CaptureError, TraceError) as error:
        failed = SelfCheck(
            framework=name,
            name="session",
            passed=False,
            found=str(error),
            advice="a profiler session must start and write its trace",
        )
        return (failed,)
    second = SelfCheck(
        framework=name, name=_EXCLUSIVE, passed=True, found="a second one is refused"
    )
    if not refuses:
        second = SelfCheck(
            framework=name,
            name=_EXCLUSIVE,
            passed=False,
            found="a second one starts while another runs",
            advice="stop profilers of your own before a step is profiled; "
            f"this {name} does not report them",
        )
    n_devices = len(framework.accelerators())
    return (*check_traces(name, traces, _N_STEPS, n_devices, _admin_only()), second)


def _admin_only() -> bool | None:
    try:
        return reads_admin_only(_DRIVER.read_text("utf-8", errors="replace"))
    except OSError:
        return None


def _remarks(framework: str, seconds: float) -> Sequence[str]:
    """Return interference that is noticed while steps run here, without the first of them."""
    notes: list[str] = []
    step = convolution_step(framework)
    _run_for(step, seconds * _WARM_UP)
    with conditions_noted(notes):
        _run_for(step, seconds)
    return notes


def _run_for(step: Callable[[], Any], seconds: float) -> None:
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        step()
    synchronise()
