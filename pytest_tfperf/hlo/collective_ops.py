"""
Collectives in HLO: opcode, bytes and groups, from an instruction's text or a module's bytes.

Field numbers are those of xla/service/hlo.proto and xla/xla_data.proto (openxla/xla).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

import numpy as np

from pytest_tfperf.errors import LayoutError
from pytest_tfperf.hlo.decode import shape_at
from pytest_tfperf.hlo.layout import parse_shape
from pytest_tfperf.hlo.module import Shape
from pytest_tfperf.protobuf import BYTES, VARINT, Message

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


@dataclass(frozen=True, slots=True)
class Participants:
    """The collectives of a program, and the devices that run it."""

    collectives: dict[str, Collective] = field(default_factory=dict)
    """Collectives by instruction."""
    devices: tuple[int, ...] = ()
    """Ids of the devices by global id of HLO; empty if the module names none."""


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


def participants_at(message: Message, begin: int, end: int) -> Participants:
    """
    Read the collectives and devices of an HloModuleProto, without its other instructions.

    Fields: HloModuleProto computations = 3, device_assignment = 15; HloComputationProto
    instructions = 2; DeviceAssignmentProto computation_devices = 3 → replica_device_ids = 1. The
    global id of HLO is replica × number of computations + computation.

    Args:
        message: The message.
        begin: Offset of the module's first byte.
        end: Offset behind its last byte.

    Raises:
        TraceError: If the bytes are not an HloModuleProto.
    """
    found: dict[str, Collective] = {}
    for computation in message.inside(begin, end, 3):
        for span in message.inside(*computation, 2):
            name, opcode = (_text(message, span, number) for number in (1, 2))
            if is_collective(opcode):
                found[name] = _collective(message, span, opcode)
    columns = [
        _integers(message, devices, 1)
        for assignment in message.inside(begin, end, 15)
        for devices in message.inside(*assignment, 3)
    ]
    alike = len({len(column) for column in columns}) == 1
    by_replica = zip(*columns, strict=True) if alike else ()
    return Participants(found, tuple(device for row in by_replica for device in row))


def _collective(message: Message, span: tuple[int, int], opcode: str) -> Collective:
    """
    Read a collective.

    Fields: HloInstructionProto shape = 3, replica_groups = 49 → replica_ids = 1,
    source_target_pairs = 52 → source = 1, target = 2, collective_device_list = 87 →
    (replica_groups = 1, iota_replica_group_list = 2).

    Args:
        message: The message.
        span: Begin and end of the HloInstructionProto.
        opcode: Its opcode.
    """
    shapes = [shape_at(message, *inner) for inner in message.inside(*span, 3)]
    n_bytes = _bytes(opcode, shapes[-1]) if shapes else None
    listed = list(message.inside(*span, 49))
    for devices in message.inside(*span, 87):
        listed += message.inside(*devices, 1)
        for iota in message.inside(*devices, 2):
            return Collective(opcode, n_bytes, _iota(message, iota))
    rows = [_integers(message, group, 1) for group in listed]
    rows += [
        (_integers(message, pair, 1) or [0]) + (_integers(message, pair, 2) or [0])
        for pair in message.inside(*span, 52)
    ]
    groups = ",".join("{" + ",".join(map(str, row)) + "}" for row in rows)
    return Collective(opcode, n_bytes, "{" + groups + "}")


def _iota(message: Message, span: tuple[int, int]) -> str:
    """
    Write an IotaReplicaGroupListProto as in HLO text.

    Fields: num_replica_groups = 1, num_devices_per_group = 2, iota_reshape_dims = 3,
    iota_transpose_perm = 4.
    """
    sizes, lengths, order = (
        ",".join(str(one) for number in numbers for one in _integers(message, span, number))
        for numbers in ((1, 2), (3,), (4,))
    )
    turned = f"T({order})" if order not in ("", "0") else ""
    return f"[{sizes}]<=[{lengths}]{turned}"


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


def _text(message: Message, span: tuple[int, int], number: int) -> str:
    texts = list(message.inside(*span, number))
    return message.text(*texts[-1]) if texts else ""


def _integers(message: Message, span: tuple[int, int], number: int) -> list[int]:
    """Return the values of a repeated number, packed or not."""
    values: list[int] = []
    for found, wire, value, behind in message.fields(*span, "HloModuleProto"):
        if found == number and wire == VARINT:
            values.append(message.signed(value))
        while found == number and wire == BYTES and value < behind:
            item, value = message.varint(value, behind, "HloModuleProto")
            values.append(message.signed(item))
    return values
