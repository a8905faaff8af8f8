"""The XLA executables that ran in the steps, their programs in a trace, and how often each ran."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TypeVar

import numpy as np

from pytest_tfperf.errors import TraceError
from pytest_tfperf.facts.steps import Steps, find_steps, launching
from pytest_tfperf.hlo.module import HloInstruction, HloModule, source_line
from pytest_tfperf.metric_registry import nearest
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.devices import accelerators, tpus
from pytest_tfperf.trace.events import Events, enclosing, joined, labels
from pytest_tfperf.trace.hlo_modules import argument_shapes, live_modules, modules_of
from pytest_tfperf.trace.host_events import (
    compilations,
    compiled_modules,
    is_module_of,
    launched_ps,
    thunks,
    xla_executions,
)
from pytest_tfperf.trace.xspace import HOST, Trace, read_trace
from pytest_tfperf.values import WAITS

T = TypeVar("T")
_NO_STEP = np.empty(0, np.int64)
_OF_JAX = ("jit_", "pmap_")
_MODULE = re.compile(r"a_inference_(.+)_\d+__.*")
_CLUSTER = re.compile(r"__XlaCompiledKernel_.*")  # what auto-clustering appends


@dataclass(frozen=True, slots=True, eq=False)
class XlaUse:
    """
    The executables that ran in the steps.

    A name in the events may be cut short; the `(program_id)` at its end is unique. But JAX names an
    executable from its persistent compilation cache by the number that it had in another process.
    """

    launches: Ints
    """Executions in each step, shape (n_steps,)."""
    clusters: Ints
    """Distinct executables in each step, shape (n_steps,)."""
    modules: dict[str, float]
    """Runs per step by name, on the device with most."""
    steps: dict[str, Ints] = field(default_factory=dict)
    """Indices of the steps by name."""
    on_all_devices: dict[str, float] = field(default_factory=dict)
    """Runs per step by name, on all devices together; empty if there is one."""

    def in_metadata(self, names: Collection[str]) -> dict[str, float]:
        """Return the full names of executables that ran, with their runs per step."""
        return _by_program(self.modules, names)

    def on_all_devices_in_metadata(self, names: Collection[str]) -> dict[str, float]:
        """Return the full names of executables that ran, with their runs on all devices."""
        return _by_program(self.on_all_devices or self.modules, names)

    def all_in_metadata(self, names: Collection[str]) -> Collection[str] | None:
        """Return the full names of all executables that ran, or None if they are not there."""
        if len(known := self.in_metadata(names)) == len(self.modules):
            return known
        titles = {_title(name) for name in self.modules}
        alike = [name for name in names if _title(name) in titles]
        return alike if len(alike) == len(self.modules) else None

    def steps_in_metadata(self, names: Collection[str]) -> dict[str, Ints]:
        """Return the full names of executables that ran, with the indices of their steps."""
        return _by_program(self.steps, names)


def find_xla_use(trace: Trace, steps: Steps, as_launched: Steps | None = None) -> XlaUse:
    """
    Count the executables and executions of each step, on one device of several; they are those of
    TPUs' `XLA Modules` line, of the host and GPUs' kernels, or, on a CPU, of the host and its
    thunks.
    """
    if cores := _tpu_executions(trace):
        return _on_tpus(cores, steps)
    host = Events.of(trace.plane(HOST))
    executions = xla_executions(host)
    launched = launching(steps, as_launched or steps, executions.start)
    launches = steps.counts(launched)
    gpus = [ops for ops in (thunks(Events.of(plane)) for plane in accelerators(trace)) if len(ops)]
    if not launches.any() and (len(executions) or accelerators(trace)):
        return XlaUse(launches, launches, {})
    if gpus:
        return _on_gpus(gpus, executions, launched, steps)
    ops = thunks(host)
    begun = ops.start if len(executions) else launched_ps(ops.plane)[ops.rows]
    ran = _runs_on_host(trace, ops, launching(steps, as_launched or steps, begun))
    clusters = np.zeros(len(steps), np.int64)
    for step, n in ran.values():
        clusters[step] += 1
        if not len(executions):
            launches[step] += n
    return XlaUse(
        launches,
        clusters,
        _each_step({name: int(n.sum()) for name, (_, n) in ran.items()}, steps),
        {name: step for name, (step, _) in ran.items()},
    )


def _on_tpus(cores: Sequence[Events], steps: Steps) -> XlaUse:
    """Count the executables that ran on TPU cores, and the executions of the busiest core."""
    busiest = max(cores, key=len)
    step = steps.of(busiest.start)
    runs, on_all, ran = Counter[str](), Counter[str](), dict[str, Ints]()
    for events in cores:
        events = events.where(steps.of(events.start) >= 0)
        found, names = Counter(events.names), np.array(events.names)
        runs, on_all = runs | found, on_all + found
        for name in found:
            ran_in = steps.of(events.start[names == name])
            ran[name] = np.union1d(ran.get(name, _NO_STEP), ran_in)
    pairs = _pairs(step, busiest.plane.name_index[busiest.rows])
    return XlaUse(
        steps.counts(step),
        steps.counts(pairs[0]),
        _each_step(runs, steps),
        ran,
        _each_step(on_all, steps),
    )


def _on_gpus(gpus: Sequence[Events], executions: Events, launched: Ints, steps: Steps) -> XlaUse:
    """
    Count the executables whose kernels ran on GPUs, and their launches: executions on the GPU with
    most, by the kernels that they enqueue; those without known kernels are of one program on all.
    """
    ops = [events.where(steps.of(events.start) >= 0) for events in gpus]
    step = np.concatenate([steps.of(events.start) for events in ops])
    program = np.concatenate([events.integers("program_id") for events in ops])
    pairs = _pairs(step, program)
    executed, device = _programs_and_gpus(executions, gpus)
    counts = (launched >= 0) & (device >= 0)
    triples, n = np.unique(
        np.array([launched, executed, device])[:, counts], axis=1, return_counts=True
    )
    of_program, most = np.unique(triples[:2], axis=1, return_inverse=True)
    n_launches = np.zeros(of_program.shape[1], np.int64)
    np.maximum.at(n_launches, most.reshape(-1), n)
    launches = -(-steps.counts(launched[device < 0]) // len(gpus))
    np.add.at(launches, of_program[0], n_launches)
    runs: dict[str, float] = {}
    on_all: dict[str, float] = {}
    for events in ops:
        for name, n_runs in _runs(events).items():
            runs[name] = max(n_runs, runs.get(name, 0.0))
            on_all[name] = n_runs + on_all.get(name, 0.0)
    if len(gpus) > 1 and counts[launched >= 0].all():
        runs = {name: float(n_launches[of_program[1] == program_id(name)].sum()) for name in runs}
    ran = {name: pairs[0][pairs[1] == program_id(name)] for name in runs}
    return XlaUse(
        launches,
        steps.counts(pairs[0]),
        _each_step(runs, steps),
        ran,
        _each_step(on_all, steps),
    )


def _programs_and_gpus(executions: Events, gpus: Sequence[Events]) -> tuple[Ints, Ints]:
    """Return the program and the GPU of each execution, by the kernels it enqueued, else -1."""
    calls = Events.of(executions.plane).having("correlation_id")
    ids, run = calls.integers("correlation_id", -2), enclosing(executions, calls)
    program, device = np.full((2, len(executions)), -1)
    for n, kernels in enumerate(gpus):
        found = joined(kernels.integers("correlation_id", -1), ids, run)
        program[found[found >= 0]] = kernels.integers("program_id")[found >= 0]
        device[found[found >= 0]] = n
    return program, device


def step_executables(trace: Trace, use: XlaUse) -> dict[str, HloModule]:
    """Return the optimised modules that ran and that the trace has; TraceError if damaged."""
    return modules_of(trace, use.in_metadata(live_modules(trace)))


def _tpu_executions(trace: Trace) -> list[Events]:
    modules = [Events.of(plane).on_lines("XLA Modules") for plane in tpus(trace)]
    return [events.named(lambda name: WAITS not in name) for events in modules if len(events)]


def _runs(ops: Events) -> dict[str, float]:
    """
    Count the runs of each module as those of its rarest op, since loops repeat others; a CUDA graph
    counts as one instruction, whose kernels have the correlation id of its launch.
    """
    if not len(ops):
        return {}
    launch = ops.integers("correlation_id", -1)
    launch = np.where(launch >= 0, launch, -1 - np.arange(len(ops)))
    name = ops.plane.name_index[ops.rows]
    launched = np.array([ops.integers("program_id"), labels(ops, "hlo_op")[0], name, launch])
    _, kept = np.unique(launched, axis=1, return_index=True)
    pairs, first, n_ran = np.unique(
        launched[:3, kept], axis=1, return_index=True, return_counts=True
    )
    first = kept[first]
    titles = Events(ops.plane, ops.rows[first]).texts("hlo_module")
    runs: dict[str, float] = {}
    for key, title, n in zip(pairs[0].tolist(), titles, n_ran.tolist(), strict=True):
        module = f"{title}({key})"
        runs[module] = min(float(n), runs.get(module, float(n)))
    return runs


def _runs_on_host(trace: Trace, ops: Events, step_of: Ints) -> dict[str, tuple[Ints, Ints]]:
    """
    Count the runs of each module in each step by JAX's numbers of runs, else by thunks: of the
    entry computation where their counts differ, since loops repeat others, or the rarest without
    HLO.
    """
    ops, step_of = ops.where(step_of >= 0), step_of[step_of >= 0]
    if not len(ops):
        return {}
    program, name = ops.integers("program_id"), ops.plane.name_index[ops.rows]
    keys, first = np.unique(program, return_index=True)
    titles = Events(ops.plane, ops.rows[first]).texts("hlo_module")
    run, on = ops.integers("run_id", -1), ops.integers("device_ordinal", -1)
    if ((run != -1) & (on >= 0)).all():
        each = np.unique(np.array([program, step_of, run, on]), axis=1)
        return {
            f"{title}({key})": np.unique(each[1, each[0] == key], return_counts=True)
            for key, title in zip(keys.tolist(), titles, strict=True)
        }
    cells, n_ran = _counted(program, step_of, name)
    ends = np.searchsorted(cells[0], keys, side="right").tolist()
    in_metadata: dict[int, list[str]] = {}
    for full in live_modules(trace):
        in_metadata.setdefault(program_id(full), []).append(full)
    runs: dict[str, tuple[Ints, Ints]] = {}
    for key, title, begin, end in zip(keys.tolist(), titles, [0, *ends[:-1]], ends, strict=True):
        step, thunk, n = cells[1, begin:end], cells[2, begin:end], n_ran[begin:end]
        most, least = _of_each_step(step, n)
        is_alike = (most[1] == least[1]).all() and step.size == np.unique(thunk).size * most[0].size
        if not is_alike:
            entry = _entry_ops(trace, in_metadata.get(key, []))
            found = np.array([ops.plane.names[index] in entry for index in thunk.tolist()], bool)
            most = _of_each_step(step[found], n[found])[0] if found.any() else least
        runs[f"{title}({key})"] = most
    return runs


def _counted(program: Ints, step: Ints, name: Ints) -> tuple[Ints, Ints]:
    """Count equal triples."""
    order = np.lexsort((name, step, program))
    triples = np.array([program[order], step[order], name[order]])
    begins = np.flatnonzero(np.r_[True, (np.diff(triples) != 0).any(axis=0)])
    return triples[:, begins], np.diff(np.r_[begins, program.size])


def _of_each_step(step: Ints, n: Ints) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    """Return the largest and the smallest numbers of each step, with the steps, ascending."""
    steps, begins = np.unique(step, return_index=True)
    return (steps, np.maximum.reduceat(n, begins)), (steps, np.minimum.reduceat(n, begins))


def _entry_ops(trace: Trace, names: Sequence[str]) -> frozenset[str]:
    """Return the names of the instructions that modules enter with, empty without their HLO."""
    try:
        modules = modules_of(trace, names).values() if names else ()
    except TraceError:  # whoever needs the module says so
        return frozenset()
    return frozenset(
        op.name
        for module in modules
        for op in module.computations[module.entry_id].instructions.values()
    )


def _pairs(step: Ints, program: Ints) -> Ints:
    """Return each step with each of its programs, once, shape (2, n)."""
    return np.unique(np.array([step[step >= 0], program[step >= 0]]), axis=1)


def _by_program(found: Mapping[str, T], names: Collection[str]) -> dict[str, T]:
    """
    Look up full names in a mapping whose names, but for those of JAX, may be cut short; a function
    of JAX whose numbers may be those of another process is known if it has one executable.
    """
    full = {*names}
    of_jax = {name for name in found if name.startswith(_OF_JAX)}
    moved = {_title(name) for name in of_jax - full}
    by_id = {name.rpartition("(")[2]: what for name, what in found.items() if name not in of_jax}
    looked_up = {
        name: found[name] if name in of_jax else by_id[key]
        for name in names
        if _title(name) not in moved
        and (name in of_jax or (key := name.rpartition("(")[2]) in by_id)
    }
    for title in moved:
        ran = [name for name in of_jax if _title(name) == title]
        alike = [name for name in full if _title(name) == title]
        if len(ran) == len(alike) == 1:
            looked_up[alike[0]] = found[ran[0]]
    return looked_up


def _title(name: str) -> str:
    """Return the name of an executable's module, without its number."""
    return name.rpartition("(")[0]


def _each_step(runs: Mapping[str, float], steps: Steps) -> dict[str, float]:
    return {name: n / steps.n_steps for name, n in runs.items()}


def compiled_outside(trace: Trace, steps: Steps) -> list[str]:
    """Return the modules of the executables that were compiled outside of steps, "" if unknown."""
    compiled = compilations(Events.of(trace.plane(HOST)))
    return compiled_modules(compiled.where(steps.of(compiled.start) < 0))


def short_module(name: str) -> str:
    """
    Return `step` of `a_inference_step_12__XlaMustCompile_….3(4)`, `cluster_0` of `cluster_0__…`.
    """
    return _CLUSTER.sub("", _MODULE.sub(r"\1", name)).partition("(")[0]


def program_id(name: str) -> int:
    """Return the number in `module(number)`, which grows as executables are made, or 0."""
    number = name.rpartition("(")[2].removesuffix(")")
    return int(number) if re.fullmatch(r"-?[0-9]{1,20}", number) else 0


def full_names(modules: Sequence[str], names: Iterable[str]) -> list[str | None]:
    """Return the modules' latest executables in the order of compilation, None for missing ones."""
    known: dict[str, list[str]] = {}
    for name in sorted(names, key=program_id):
        known.setdefault(name.rpartition("(")[0], []).append(name)
    left = Counter(modules)
    found: list[str | None] = []
    for module in modules:
        alike = known.get(module, [])
        found.append(alike[-left[module]] if left[module] <= len(alike) else None)
        left[module] -= 1
    return found


def runs_unlike_programs(trace: Trace, steps: Steps) -> bool:
    """
    Return whether two programs of the steps have no line of the user's in common, as programs of
    one function for other shapes, types or static arguments have; one without any line tells
    nothing.
    """
    use = find_xla_use(trace, steps)
    programs = _programs_of_steps(trace, steps, use).values()
    lines = [set(filter(None, map(source_line, _ops(program)))) for program in programs]
    return any(not first & second for first, second in combinations(filter(None, lines), 2))


def alternate(trace: Trace, steps: Steps) -> bool:
    """
    Return whether steps alternate between two programs with different numbers of arguments, as the
    halves of a function of `jax.jit` under `jax.grad` do.
    """
    use = find_xla_use(trace, steps)
    names = _programs_of_steps(trace, steps, use)
    ran_in, shapes = use.steps_in_metadata(names), argument_shapes(trace, set(names))
    return any(
        len(shapes[first]) != len(shapes[second])
        and _never_twice(ran_in[first])
        and _never_twice(ran_in[second])
        for first, second in combinations(shapes, 2)
    )


def _never_twice(steps: Ints) -> bool:
    """Return whether a program ran in several steps, and in none that follows another."""
    return steps.size > 1 and bool((np.diff(steps) > 1).all())


def _programs_of_steps(trace: Trace, steps: Steps, use: XlaUse) -> dict[str, HloModule]:
    """Return the programs that have the name of the function whose calls are the steps."""
    function = steps.names[0].rpartition(" ")[0]
    found = step_executables(trace, use)
    return {name: module for name, module in found.items() if is_module_of(name, function)}


def _ops(module: HloModule) -> Iterator[HloInstruction]:
    for part in module.computations.values():
        yield from part.instructions.values()


@dataclass(frozen=True, slots=True)
class Program:
    """One XLA executable."""

    name: str
    module: HloModule
    runs: float | None = None
    """A step, None if no step runs it."""

    @property
    def title(self) -> str:
        """A readable and unique name: `step(12)`."""
        return f"{self.short}({self.name.rpartition('(')[2]}" if "(" in self.name else self.short

    @property
    def short(self) -> str:
        """Name of the function that it was made of."""
        return short_module(self.name)

    @property
    def n_instructions(self) -> int:
        """Number of instructions in all its computations."""
        return sum(len(part.instructions) for part in self.module.computations.values())


def programs_of(trace: Trace) -> list[Program]:
    """Return the executables of a trace's steps, else all, by size; TraceError if damaged."""
    try:
        ran = find_xla_use(trace, find_steps(trace)).in_metadata(live_modules(trace))
    except TraceError:  # no step
        ran = {}
    modules = modules_of(trace, ran) or modules_of(trace)
    programs = [Program(name, module, ran.get(name)) for name, module in modules.items()]
    return sorted(
        programs, key=lambda program: (-(program.runs or 1) * program.n_instructions, program.name)
    )


def programs_of_run(traces: Iterable[Path]) -> list[Program]:
    """Return the executables of the first host that has any; raises TraceError if none has."""
    read = []
    for path in traces:
        if programs := programs_of(read_trace(path)):
            return programs
        read.append(str(path))
    raise TraceError(
        f"{', '.join(read)}: no HLO in it: XLA had compiled nothing when it ended "
        "(jit_compile=True compiles a tf.function, jax.jit a function of JAX), or the "
        "profiler ran without enable_hlo_proto"
    )


def pick(programs: Sequence[Program], name: str) -> Program:
    """Return the executable of a function's name, shown or traced name; TraceError if not one."""
    found = [
        program
        for program in programs
        if name in (program.name, program.title, program.module.name, program.short)
    ]
    if len(found) > 1:
        raise TraceError(
            f"{len(found)} executables are named {name!r}; take one of "
            f"{', '.join(program.title for program in found)}"
        )
    if not found:
        names = {program.title for program in programs} | {program.short for program in programs}
        raise TraceError(f"no executable is named {name!r}; {nearest(name, names)}")
    return found[0]
