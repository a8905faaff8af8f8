"""What XLA ran in the steps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.analysis.device import accelerators, tpus
from pytest_tfperf.analysis.ops import compilations, xla_executions
from pytest_tfperf.analysis.steps import HOST, Steps
from pytest_tfperf.trace.events import Events
from pytest_tfperf.trace.wire import Ints
from pytest_tfperf.trace.xspace import Trace

_MODULE = re.compile(r"a_inference_(.+)_\d+__.*")


@dataclass(frozen=True, slots=True, eq=False)
class XlaUse:
    """
    `launches` and `clusters` (distinct executables) of each step, shape (n_steps,); `modules` by name, with the runs of each in a step.

    A name in the events may be cut short; the `(program_id)` at its end is unique.
    """

    launches: Ints
    clusters: Ints
    modules: dict[str, float]

    def in_metadata(self, names: Iterable[str]) -> dict[str, float]:
        """Of these full names those of executables that ran, with the runs of each in a step."""
        runs = {name.rpartition("(")[2]: n for name, n in self.modules.items()}
        return {name: runs[key] for name in names if (key := name.rpartition("(")[2]) in runs}


def find_xla_use(trace: Trace, steps: Steps) -> XlaUse:
    """
    How many executables ran in each step, and how often, on one device where there are several.

    On TPUs they are the events of the `XLA Modules` line, of the core that has most; elsewhere the executions on the host, and
    what kernels on the GPUs, else thunks on the host, name as `hlo_module` and `program_id`.
    """
    busiest = max(_tpu_executions(trace), key=len, default=None)
    if busiest is not None:
        step = steps.of(busiest.start)
        programs = _distinct(step, busiest.plane.name_index[busiest.rows], steps)
        return XlaUse(steps.counts(step), programs, _each_step(Counter(busiest.where(step >= 0).names), steps))
    host = Events.of(trace.plane(HOST))
    launches = steps.counts(steps.of(xla_executions(host).start))
    if not launches.any():
        return XlaUse(launches, launches, {})
    gpus = [ops for ops in (Events.of(plane).having("program_id") for plane in accelerators(trace)) if len(ops)]
    ops = [events.where(steps.of(events.start) >= 0) for events in gpus or [host.having("program_id")]]
    step = np.concatenate([steps.of(events.start) for events in ops])
    program = np.concatenate([events.integers("program_id") for events in ops])
    runs: dict[str, float] = {}
    for events in ops:
        for name, n in _runs(events).items():
            runs[name] = max(n, runs.get(name, 0.0))
    return XlaUse(launches // max(len(gpus), 1), _distinct(step, program, steps), _each_step(runs, steps))


def _tpu_executions(trace: Trace) -> list[Events]:
    return [events for plane in tpus(trace) if len(events := Events.of(plane).on_lines("XLA Modules"))]


def _runs(ops: Events) -> dict[str, float]:
    """How often each module ran whose ops these are: as often as the op of it that ran least, since loops repeat some."""
    if not len(ops):
        return {}
    program, name = ops.integers("program_id"), ops.plane.name_index[ops.rows]
    pairs, first, n_ran = np.unique(np.array([program, name]), axis=1, return_index=True, return_counts=True)
    titles = Events(ops.plane, ops.rows[first]).texts("hlo_module")
    runs: dict[str, float] = {}
    for key, title, n in zip(pairs[0].tolist(), titles, n_ran.tolist(), strict=True):
        module = f"{title}({key})"
        runs[module] = min(float(n), runs.get(module, float(n)))
    return runs


def _distinct(step: Ints, program: Ints, steps: Steps) -> Ints:
    """How many different programs each step has."""
    pairs = np.unique(np.array([step[step >= 0], program[step >= 0]]), axis=1)
    return steps.counts(pairs[0])


def _each_step(runs: Mapping[str, float], steps: Steps) -> dict[str, float]:
    return {name: n / steps.n_steps for name, n in runs.items()}


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
