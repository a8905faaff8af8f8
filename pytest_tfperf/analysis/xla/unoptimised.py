"""The programs that a step of JAX runs, before XLA optimises them for a platform."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from pytest_tfperf.hlo.module import HloModule
from pytest_tfperf.recording import Modules
from pytest_tfperf.values import Unknown

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
Primitives with rules of their own for some platforms, which change their FLOPs.

Source: `mlir.register_lowering(…, platform=…)` in jax/_src (0.7 to 0.10). Other rules for platforms
make the same products, or custom calls.
"""
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*?(?=(?:_\d+)?(?:\.\d+)?(?:[^\w.]|$))")


def programs_before(
    ran: Mapping[str, float], n_ran: int, unoptimised: Callable[[str], bytes | Unknown]
) -> Modules | Unknown:
    """
    Return the programs that a step's executables were made of.

    Args:
        ran: Runs per step of the executables that ran, by their names in the trace's metadata.
        n_ran: The number of executables that ran.
        unoptimised: Returns the program that an executable was made of.
    """
    if len(ran) < n_ran:
        return Unknown(f"the trace names {len(ran)} of the {n_ran} executables that ran")
    found = []
    for name, runs in ran.items():
        program = unoptimised(name)
        if isinstance(program, Unknown):
            return program
        found.append((program, runs))
    return tuple(found)


def differs_by_platform(module: HloModule) -> bool:
    """Return whether JAX makes another program of the same function for another platform."""
    for part in module.computations.values():
        if _names_one(part.name):
            return True
        for op in part.instructions.values():
            if op.opcode == "custom-call" or _names_one(op.op_name):
                return True
    return False


def _names_one(text: str) -> bool:
    return not _BY_PLATFORM.isdisjoint(_WORD.findall(text))
