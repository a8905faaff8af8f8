"""Programs of steps that are calls of one name: they may be of several functions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from pytest_tfperf.facts.executions import XlaUse, find_xla_use, step_executables
from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.hlo.module import HloInstruction, HloModule, source_line
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.hlo_modules import argument_shapes
from pytest_tfperf.trace.host_events import is_module_of
from pytest_tfperf.trace.xspace import Trace


def runs_unlike_programs(trace: Trace, steps: Steps) -> bool:
    """
    Return whether two programs of the steps have no line of the user's code in common.

    Programs of one function for other shapes, types or static arguments have some. A program
    without any line tells nothing.

    Args:
        trace: The trace of the steps.
        steps: The steps.
    """
    use = find_xla_use(trace, steps)
    programs = _programs_of_steps(trace, steps, use).values()
    lines = [set(filter(None, map(source_line, _ops(program)))) for program in programs]
    return any(not first & second for first, second in combinations(filter(None, lines), 2))


def alternate(trace: Trace, steps: Steps) -> bool:
    """
    Return whether steps alternate between two programs with different numbers of arguments.

    So do the forward and backward halves of a function of `jax.jit` under `jax.grad`, which calls
    it for each.

    Args:
        trace: The trace of the steps.
        steps: The steps.
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
