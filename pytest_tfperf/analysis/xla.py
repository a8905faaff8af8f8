"""What XLA ran in the steps."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.analysis.ops import compilations, xla_executions
from pytest_tfperf.analysis.steps import HOST, Steps, device_planes
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.wire import Ints
from pytest_tfperf.trace.xspace import Trace

_MODULE = re.compile(r"a_inference_(.+)_\d+__.*")


@dataclass(frozen=True, slots=True, eq=False)
class XlaUse:
    """`launches` and `clusters` (distinct executables) of each step, shape (n_steps,); `modules` by name, with the steps each ran in."""

    launches: Ints
    clusters: Ints
    modules: dict[str, int]


def find_xla_use(trace: Trace, steps: Steps) -> XlaUse:
    """
    How many executables ran in each step, and how often, on one device where there are several.

    On TPUs they are the events of the `XLA Modules` line, of the core that has most; elsewhere the executions on the host, and
    what their thunks on the host and kernels on the GPUs name as `hlo_module` and `program_id`.
    """
    executions = max(_tpu_executions(trace), key=len, default=None)
    if executions is not None:
        step = steps.of(executions.start)
        program = executions.plane.name_index[executions.rows]
        return _use(len(steps), step, step, program, dict(enumerate(executions.plane.names)))
    host = Events.of(trace.plane(HOST))
    gpus = [ops for ops in (Events.of(plane).having("program_id") for plane in device_planes(trace)) if len(ops)]
    run_step = steps.of(xla_executions(host).start)
    ops = [host.having("program_id"), *gpus] if (run_step >= 0).any() else []
    names = {key: f"{name}({key})" for events in ops for key, name in _programs(events).items()}
    step = np.concatenate([steps.of(events.start) for events in ops]) if ops else run_step[:0]
    program = np.concatenate([events.integers("program_id") for events in ops]) if ops else run_step[:0]
    use = _use(len(steps), run_step, step, program, names)
    return XlaUse(use.launches // max(len(gpus), 1), use.clusters, use.modules)


def _tpu_executions(trace: Trace) -> list[Events]:
    planes = [plane for plane in device_planes(trace) if plane.name.startswith("/device:TPU:")]
    lines = [Events.of(plane).on_line(i) for plane in planes for i, line in enumerate(plane.lines) if line.name == "XLA Modules"]
    return [events for events in lines if len(events)]


def _programs(events: Events) -> dict[int, str]:
    """The module of each program id that the events carry."""
    ids, first = np.unique(events.integers("program_id"), return_index=True)
    return dict(zip(ids.tolist(), Events(events.plane, events.rows[first]).texts("hlo_module"), strict=True))


def _use(n_steps: int, run_step: Ints, step: Ints, program: Ints, names: dict[int, str]) -> XlaUse:
    """From the step of each run, and the step and the program of whatever names one; -1 is no step."""
    pairs = np.unique(np.array([step[step >= 0], program[step >= 0]]), axis=1)
    ran, n_ran = np.unique(pairs[1], return_counts=True)
    return XlaUse(
        launches=np.bincount(run_step[run_step >= 0], minlength=n_steps),
        clusters=np.bincount(pairs[0], minlength=n_steps),
        modules={names[key]: n for key, n in zip(ran.tolist(), n_ran.tolist(), strict=True)},
    )


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
