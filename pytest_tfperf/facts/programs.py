"""The XLA executables of a trace, each with its HLO and how often a step runs it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_tfperf.errors import TraceError
from pytest_tfperf.facts.executions import find_xla_use, short_module
from pytest_tfperf.facts.steps import find_steps
from pytest_tfperf.hlo.module import HloModule
from pytest_tfperf.metric_registry import nearest
from pytest_tfperf.trace.hlo_modules import live_modules, modules_of
from pytest_tfperf.trace.xspace import Trace, read_trace


@dataclass(frozen=True, slots=True)
class Program:
    """One XLA executable."""

    name: str
    """Name in the trace."""
    module: HloModule
    """Optimised module."""
    runs: float | None = None
    """Runs per step, or None if no step runs it."""

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
    """
    Return the executables that ran in the steps of a trace, else all of them, the largest first.

    Raises:
        TraceError: If one of them is damaged.
    """
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
    """
    Return the executables of one run: those of the first host that has any.

    Raises:
        TraceError: If a trace cannot be read, or none holds an executable.
    """
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
    """
    Return the executable of a name: its function's (`step`), the shown one (`step(12)`), or the
    trace's.

    Raises:
        TraceError: If there is none, or more than one.
    """
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
