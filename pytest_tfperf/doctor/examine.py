"""`tfperf doctor`: whether this machine can profile and compare, and how well."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

from pytest_tfperf.doctor.checks import SelfCheck, convolution_step, profiler_checks
from pytest_tfperf.doctor.sections import (
    Section,
    conditions_section,
    fitness_section,
    machine_section,
    noise_section,
    profiler_section,
    resolution_section,
    stored_section,
)
from pytest_tfperf.doctor.turns import Say, same_code_turns
from pytest_tfperf.frameworks.in_use import load_installed, synchronise
from pytest_tfperf.machine.conditions import Interference
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

_WATCHED_S = 2.0  # of steps, while the rest of the machine is watched
_WARM_UP = 0.25  # of that time


def examine(seconds: float, say: Say) -> Iterator[Section]:
    """Yield the sections as they are found; each pair of processes takes turns for `seconds`."""
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
            checks += profiler_checks(framework, cleanup.folder)
        profiler = profiler_section(checks)
        yield profiler
        cores = pinnable_cores()
        say("watching for interference", _WATCHED_S * (1 + _WARM_UP))
        conditions = conditions_section(
            None if load is None else (load, len(usable_cores())),
            _remarks(first.name, _WATCHED_S),
            watched_s=_WATCHED_S,
            can_stop=can_stop(),
            can_pin=can_pin(cores),
        )
        yield conditions
        if conditions.failed:
            yield fitness_section(profiler, ())
            return
        choices = (cores, ()) if conditions.data["can_pin"] else ((),)
        kinds = [same_code_turns(first.name, choice, seconds, cleanup, say) for choice in choices]
    yield noise_section(kinds, seconds)
    yield resolution_section(kinds)
    yield stored_section(kinds[-1].stored)
    yield fitness_section(profiler, kinds)


def _remarks(framework: str, seconds: float) -> Sequence[str]:
    """Return interference that is noticed while steps run here, without the first of them."""
    interference, step = Interference(), convolution_step(framework)
    _run_for(step, seconds * _WARM_UP)
    with interference.watched():
        _run_for(step, seconds)
    return interference.remarks


def _run_for(step: Callable[[], Any], seconds: float) -> None:
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        step()
    synchronise()
