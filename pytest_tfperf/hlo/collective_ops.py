"""Collectives in HLO: opcode, bytes and groups, of an instruction or of its text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from pytest_tfperf.errors import LayoutError
from pytest_tfperf.hlo.layout import parse_shape
from pytest_tfperf.hlo.module import HloInstruction, Shape

START, DONE = "-start", "-done"
JOINS = frozenset({"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all"})
"""Opcodes of collectives that no device of a group leaves before all have entered."""
TRANSFERS = frozenset({"send", "recv"})
"""Opcodes that move data to or from one partner."""
_OTHERS = TRANSFERS | frozenset({"collective-permute", "collective-broadcast"})
_TEXT = re.compile(r"%?(\S+) = (.*?) ([a-z][a-z0-9-]*)\(", re.DOTALL)
_LISTED = r"\{(?:\{[\d,]*\}(?:,\{[\d,]*\})*)?\}"
_IOTA = r"\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?"
_GROUPS = re.compile(rf"(?:replica_groups|source_target_pairs)=({_LISTED}|{_IOTA})")
_MOST_IDS, _MOST_DIMENSIONS = 1 << 16, 32
Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective instruction."""

    opcode: str
    """Opcode as in HLO text; the asynchronous ones end in `-start` and `-done`."""
    bytes: int | None
    """Bytes of the arrays that one device gets; None if the instruction names none."""
    groups: str
    """Replica groups, or pairs of source and target, as in HLO text; empty if it names none."""


@lru_cache(4096)
def collective_in(text: str) -> Collective | None:
    """Return the collective of an instruction's text; None for other instructions and texts."""
    match = _TEXT.match(text)
    if match is None or not is_collective(match[3]):
        return None
    try:
        shape = parse_shape(match[2])
    except LayoutError:
        shape = Shape("token")
    groups = _GROUPS.search(text, match.end())
    return Collective(match[3], _bytes(match[3], shape), groups[1] if groups else "")


def collective_of(op: HloInstruction) -> Collective | None:
    """Return the collective that an instruction is; None for other instructions."""
    if not is_collective(op.opcode):
        return None
    return Collective(op.opcode, _bytes(op.opcode, op.shape), op.replica_groups or "{}")


def is_collective(opcode: str) -> bool:
    """Return whether an opcode is that of a collective, a send or a receive."""
    return synchronous(opcode) in JOINS | _OTHERS


def synchronous(opcode: str) -> str:
    """Return an opcode without the ending of an asynchronous one."""
    return opcode.removesuffix(START).removesuffix(DONE)


@lru_cache(4096)
def members(groups: str) -> Groups | None:
    """
    Return the ids of each replica group; none if one group has all.

    `{{0,1},{2,3}}` lists them. `[4,2]<=[2,4]T(1,0)` stands for the numbers from 0, reshaped to 2 ×
    4, transposed, and cut into 4 groups of 2 (xla/hlo/ir/collective_device_list.h).

    Returns:
        The ids; None if the text cannot be read, or names more than 65,536 ids.
    """
    if re.search(r"\d{10}", groups):
        return None
    if re.fullmatch(_LISTED, groups):
        listed = re.findall(r"\{([\d,]*)\}", groups[1:-1])
        found = tuple(tuple(int(one) for one in part.split(",") if one) for part in listed)
        return found if sum(map(len, found)) <= _MOST_IDS else None
    match = re.fullmatch(_IOTA, groups)
    if match is None:
        return None
    n_groups, size = int(match[1]), int(match[2])
    lengths = [int(one) for one in match[3].split(",") if one]
    order = [int(one) for one in (match[4] or "").split(",") if one] or list(range(len(lengths)))
    fits = sorted(order) == list(range(len(lengths))) and prod(lengths) == n_groups * size
    if not fits or len(lengths) > _MOST_DIMENSIONS or not 0 < n_groups * size <= _MOST_IDS:
        return None
    ids = np.arange(n_groups * size).reshape(lengths).transpose(order)
    return tuple(map(tuple, ids.reshape(n_groups, size).tolist()))


def _bytes(opcode: str, shape: Shape) -> int | None:
    """
    Return the bytes that a device gets, None without any.

    The result of a start also holds what the op reads: an all-gather or a permutation starts with
    (operand, result, …), a send or a receive with the array.
    """
    if opcode in ("all-gather-start", "collective-permute-start") and len(shape.parts) > 1:
        shape = shape.parts[1]
    elif opcode in ("send", "recv") and shape.parts:
        shape = shape.parts[0]
    return shape.bytes or None
