"""The programs that a step of JAX runs, before XLA optimises them for a platform."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pytest_tfperf.errors import TfperfError
from pytest_tfperf.facts.executions import XlaUse, program_id
from pytest_tfperf.hlo.decode import decode_module
from pytest_tfperf.hlo.module import HloModule
from pytest_tfperf.hlo.walk import hlo_hash, without_dead_code
from pytest_tfperf.recording import Modules
from pytest_tfperf.values import OF_PLATFORM, Unknown, Value

_NO_HLO = "the trace holds the HLO of {} of the {} executables that ran"
_FREED = (
    "JAX does not hold the program of {} as it was before XLA optimised it: keep its jax.jit "
    "function alive, and clear no cache of JAX in the test"
)
_BY_PLATFORM = frozenset(
    [
        "approx_top_k",
        "cholesky",
        "cumlogsumexp",
        "cummax",
        "cummin",
        "cumprod",
        "cumsum",
        "eigh",
        "lu",
        "platform_index",
        "ragged_dot_general",
        "random_gamma",
        "select_and_gather_add",
        "svd",
        "threefry2x32",
        "triangular_solve",
        "tridiagonal_solve",
    ]
)
"""
Primitives with rules of their own for some platforms, which change FLOPs and arrays.

Source: `mlir.register_lowering(…, platform=…)` in jax/_src (0.7 to 0.10). Other rules for platforms
make the same products, or custom calls.
"""
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*?(?=(?:_\d+)?(?:\.\d+)?(?:[^\w.]|$))")


class LoweredProgram(Protocol):
    """A compiled program that JAX holds, before and after optimisation."""

    @property
    def number(self) -> int:
        """The number behind its executable's name in traces, where the process itself compiles."""

    @property
    def optimised(self) -> bytes:
        """The HloModuleProto of its executable."""

    @property
    def unoptimised(self) -> bytes | Unknown:
        """The HloModuleProto that XLA made the executable of."""


Programs = Callable[[str], Sequence[LoweredProgram] | Unknown]
"""Returns the programs that JAX holds of executables of a module's name."""


def programs_before(
    use: XlaUse, executables: Mapping[str, HloModule], programs: Programs
) -> Modules | Unknown:
    """Return what a step's executables were made of; `programs` gives those that JAX holds."""
    if len(executables) < len(use.modules):
        return Unknown(_NO_HLO.format(len(executables), len(use.modules)))
    runs = use.in_metadata(executables)
    found = []
    for name, module in executables.items():
        try:
            program = _program_before(name, module, programs(name.partition("(")[0]))
            if isinstance(program, Unknown):
                return program
            found.append((without_dead_code(decode_module(program, name)), runs[name]))
        except TfperfError as error:
            return Unknown(str(error))
    return tuple(found)


def _program_before(
    name: str, module: HloModule, programs: Sequence[LoweredProgram] | Unknown
) -> bytes | Unknown:
    """
    Return the program of an executable, by its number where there is one of its name, else by its
    instructions, since compilers in plugins number executables by themselves.
    """
    if isinstance(programs, Unknown):
        return programs
    numbered = [one for one in programs if one.number == program_id(name)]
    if len(programs) == 1 and numbered:
        return numbered[0].unoptimised
    digest = hlo_hash(module)
    made: set[bytes | Unknown] = set()
    for some in (numbered, programs):
        alike = (one for one in some if hlo_hash(decode_module(one.optimised, name)) == digest)
        made = made or {one.unoptimised for one in alike}
    return made.pop() if len(made) == 1 else Unknown(_FREED.format(name.partition("(")[0]))


def differs_by_platform(module: HloModule) -> bool:
    """Return whether JAX makes another program of the same function for another platform."""
    for part in module.computations.values():
        if _names_one(part.name):
            return True
        for op in part.instructions.values():
            if op.opcode == "custom-call" or _names_one(op.op_name):
                return True
    return False


def on_its_platform(values: Mapping[str, Value], mark: bool | str = True) -> dict[str, Value]:
    """Mark known values as those of one platform, which a baseline stores for it alone."""
    return {
        name: value
        if value.number is None
        else value.changed(detail={**value.detail, OF_PLATFORM: mark})
        for name, value in values.items()
    }


def _names_one(text: str) -> bool:
    return not _BY_PLATFORM.isdisjoint(_WORD.findall(text))
