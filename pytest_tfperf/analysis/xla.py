"""What XLA ran in the steps."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.analysis.ops import compilations, xla_executions
from pytest_tfperf.analysis.steps import HOST, Steps
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.wire import Ints
from pytest_tfperf.trace.xspace import Trace

_MODULE = re.compile(r"a_inference_(.+)_\d+__.*")


@dataclass(frozen=True, slots=True, eq=False)
class XlaUse:
    """`launches` and `clusters` (distinct executables) of each step, shape (n_steps,); `modules` by name, with their runs."""

    launches: Ints
    clusters: Ints
    modules: dict[str, int]


def find_xla_use(trace: Trace, steps: Steps) -> XlaUse:
    """How many executables ran in each step, and how often."""
    host = Events.of(trace.plane(HOST))
    runs = xla_executions(host)
    run_step = steps.of(runs.start)
    launches = np.bincount(run_step[run_step >= 0], minlength=len(steps))
    if not launches.any():
        return XlaUse(launches, launches, {})
    ops = host.having("program_id")
    program, step = ops.integers("program_id"), steps.of(ops.start)
    inside = step >= 0
    pairs = np.unique(np.array([step[inside], program[inside]]), axis=1)
    clusters = np.bincount(pairs[0], minlength=len(steps))
    first = np.unique(program, return_index=True)[1]
    names = dict(zip(program[first].tolist(), Events(ops.plane, ops.rows[first]).texts("hlo_module"), strict=True))
    modules = {f"{names[key]}({key})": int((pairs[1] == key).sum()) for key in np.unique(pairs[1]).tolist()}
    return XlaUse(launches, clusters, modules)


def compiled_outside(trace: Trace, steps: Steps) -> int:
    """How many executables were compiled while no step ran."""
    return int((steps.of(compilations(Events.of(trace.plane(HOST))).start) < 0).sum())


def compiled_late(trace: Trace, steps: Steps) -> list[str]:
    """The executables that were compiled in any step of the trace but its first."""
    compiled = compilations(Events.of(trace.plane(HOST)))
    compiled = compiled.where(steps.of(compiled.start) > 0)
    return [name or "executable" for name in compiled.texts("name")]


def short_module(name: str) -> str:
    """The function's name in an executable's: `a_inference_step_12__XlaMustCompile_….3(4)` → `step`; `cluster_0…` as it is."""
    return _MODULE.sub(r"\1", name).partition("(")[0]
