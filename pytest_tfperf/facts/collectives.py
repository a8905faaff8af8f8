"""
The collectives of devices in the steps, and how long each device waits in one for the last.

What a collective moves and joins is read from its HLO instruction, or from its text.

On one host, GPUs share a clock: a device waits from its own start to the last start of its group,
and no longer than its own op. Clocks of TPU cores and of other hosts differ, so their times are
never compared. There durations tell: no device leaves a collective before all have entered, and
they leave together. So the shortest op of a group is that of the device that entered last, and
what others take longer is waiting.

Three things make a wait unknown, and none of them is guessed: whom a device waits for (groups, or
the places of devices in them), an op that is a start or a done alone, and fewer than two devices.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from pytest_tfperf.errors import LayoutError
from pytest_tfperf.facts.device_ops import (
    instruction,
    kinds_by_name,
    modules_by_id,
    on_device_clock,
)
from pytest_tfperf.facts.op_times import HLO_OP
from pytest_tfperf.facts.steps import Steps, own_steps
from pytest_tfperf.hlo.layout import parse_shape
from pytest_tfperf.hlo.module import HloInstruction, Shape
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.text import plural
from pytest_tfperf.trace.devices import GPU, accelerators, device_name, stream_events, tpu_ops
from pytest_tfperf.trace.events import Events, labels, metadata_texts
from pytest_tfperf.trace.hlo_modules import live_modules, modules_of
from pytest_tfperf.trace.stats import Mask
from pytest_tfperf.trace.xspace import Plane, Trace

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
Key = tuple[str, str]
"""Function of the program, and instruction; without HLO the name of the kernel alone."""
_UNEQUAL = "the devices ran it unequally often in each step"


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective instruction."""

    opcode: str
    """As in HLO text; asynchronous ones end in `-start` and `-done`."""
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
    Return the ids of each replica group, none if one has all, or None for an unreadable text or
    more than 65,536 ids; `[4,2]<=[2,4]T(1,0)` stands for the numbers from 0, reshaped to 2 × 4,
    transposed, and cut into 4 groups of 2 (xla/hlo/ir/collective_device_list.h).
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
    """Return the bytes that a device gets, None without any; a start's result has an operand."""
    if opcode in ("all-gather-start", "collective-permute-start") and len(shape.parts) > 1:
        shape = shape.parts[1]
    elif opcode in ("send", "recv") and shape.parts:
        shape = shape.parts[0]
    return shape.bytes or None


_Program = tuple[dict[str, Collective], tuple[int, ...]]
"""Collectives by instruction, and ids of the devices by global id of HLO."""


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """
    The runs of one collective in the steps, matched across its devices by step and place in the
    step, where the devices ran it equally often.
    """

    key: Key
    """Function and instruction."""
    facts: Collective
    """As far as the trace tells them."""
    assignment: tuple[int, ...]
    """Ids of the devices by global id of HLO; empty if the trace does not tell."""
    devices: tuple[str, ...]
    count: Ints
    """Runs of each device in each step, shape (n_devices, n_steps)."""
    total_ps: Ints
    """Picoseconds of these runs, shape (n_devices, n_steps)."""
    step: Ints
    """Index of the step of each matched run, shape (n_runs,)."""
    number: Ints
    """Its place in the step, shape (n_runs,)."""
    start_ps: Ints
    """Its starts, shape (n_devices, n_runs)."""
    duration_ps: Ints
    """Its durations, shape (n_devices, n_runs)."""
    one_clock: bool
    """Whether the starts are of one clock: those of a host's GPUs are."""
    blocks: bool
    """Whether each op is a whole collective, from entry to exit, and not a start or a done."""

    @property
    def kind(self) -> str:
        """Opcode of the collective; without HLO the name of its kernel."""
        return self.facts.opcode


@dataclass(frozen=True, slots=True, eq=False)
class _Ran:
    """The collective ops of one device in the steps, by key, step and start."""

    device: str
    key: Ints
    step: Ints
    start: Ints
    duration: Ints


def find_runs(trace: Trace, steps: Steps) -> tuple[list[Runs], int]:
    """
    Find a host's collectives, sends and receives in the steps, in the order of their first runs,
    and count the runs outside of steps.
    """
    keys: dict[Key, int] = {}
    told: dict[int, Collective] = {}
    ran, n_outside = [], 0
    for plane in accelerators(trace):
        events = _events(plane)
        step = own_steps(plane, steps).of(events.start)
        inside = events.where(step >= 0)
        n_outside += len(events) - len(inside)
        if not len(inside):
            continue
        code, found = _named(inside)
        for key, facts in found:
            place = keys.setdefault(key, len(keys))
            if facts is not None:
                told.setdefault(place, facts)
        places = np.array([keys[key] for key, _ in found], np.int64)
        timed = on_device_clock(inside)
        duration = timed.end - timed.start
        columns = (places[code], step[step >= 0], inside.start, duration)
        order = np.lexsort(columns[2::-1])
        ran.append(_Ran(device_name(plane), *(column[order] for column in columns)))
    programs = _programs(trace, {function for function, _ in keys if function})
    on_gpus = bool(ran) and ran[0].device.startswith("GPU")
    runs = []
    for key, place in keys.items():
        known = [(found[key[1]], on) for found, on in programs.get(key[0], ()) if key[1] in found]
        candidates = {found for found, _ in known}
        facts = told.get(place) or (candidates.pop() if len(candidates) == 1 else None)
        assignments = {on for _, on in known}
        assignment = assignments.pop() if len(assignments) == 1 else ()
        runs.append(_matched(key, place, facts, assignment, ran, on_gpus, len(steps)))
    return runs, n_outside


def _programs(trace: Trace, functions: Collection[str]) -> dict[str, list[_Program]]:
    """Return the programs of each function, several of which may have one function's name."""
    names = [name for name in live_modules(trace) if name.partition("(")[0] in functions]
    found: dict[str, list[_Program]] = {}
    for name, module in modules_of(trace, names).items():
        ops = (op for part in module.computations.values() for op in part.instructions.values())
        collectives = {op.name: one for op in ops if (one := collective_of(op)) is not None}
        found.setdefault(name.partition("(")[0], []).append((collectives, module.devices))
    return found


def _events(plane: Plane) -> Events:
    """Return the collectives of a device, sends and receives of a TPU included, copies not."""
    kind_of = kinds_by_name(plane)
    if GPU.match(plane.name):
        return stream_events(plane).named(lambda name: kind_of(name) == "collective")
    return tpu_ops(plane).named(lambda name: kind_of(name) in ("collective", "device_to_device"))


def _named(events: Events) -> tuple[Ints, list[tuple[Key, Collective | None]]]:
    """Return for each event an index into the second: key, and what its own text tells."""
    plane = events.plane
    if not GPU.match(plane.name):
        program, category = (metadata_texts(plane, stat) for stat in ("program_id", "hlo_category"))
        functions = {key: name.partition("(")[0] for key, name in modules_by_id(plane).items()}
        used, code = np.unique(plane.name_index[events.rows], return_inverse=True)
        names = [plane.names[index] for index in used.tolist()]
        return code.reshape(-1), [
            (
                (functions.get(program.get(name, ""), ""), instruction(name)),
                collective_in(name) or _by_category(category.get(name, "")),
            )
            for name in names
        ]
    (op, ops), (module, modules) = (labels(events, stat) for stat in (HLO_OP, "hlo_module"))
    kernel = np.where(op > 0, 0, plane.name_index[events.rows] + 1)
    columns = np.array([op, np.where(op > 0, module, 0), kernel])
    pairs, code = np.unique(columns, axis=1, return_inverse=True)
    return code.reshape(-1), [
        ((modules[at], ops[which]) if which else ("", plane.names[name - 1]), None)
        for which, at, name in pairs.T.tolist()
    ]


def _by_category(category: str) -> Collective | None:
    """Return what the category of an op tells: its opcode."""
    return Collective(category, None, "") if is_collective(category) else None


def _matched(
    key: Key,
    place: int,
    facts: Collective | None,
    assignment: tuple[int, ...],
    ran: Sequence[_Ran],
    on_gpus: bool,
    n_steps: int,
) -> Runs:
    """Match the runs of one collective across the devices."""
    found = [(one, slice(*np.searchsorted(one.key, (place, place + 1)))) for one in ran]
    mine = [(one, rows) for one, rows in found if rows.stop > rows.start]
    counts = np.array([np.bincount(one.step[rows], minlength=n_steps) for one, rows in mine])
    even = (counts == counts[0]).all(axis=0)
    columns = [(one, rows, even[one.step[rows]]) for one, rows in mine]
    first, rows, kept = columns[0]
    step = first.step[rows][kept]
    ends = np.cumsum(np.where(even, counts[0], 0))
    number = np.arange(step.size) - np.r_[0, ends][step]
    opcode = facts.opcode if facts else key[1]
    return Runs(
        key=key,
        facts=facts or Collective(opcode, None, ""),
        assignment=assignment,
        devices=tuple(one.device for one, _ in mine),
        count=counts,
        total_ps=np.array([_by_step(one, rows, n_steps) for one, rows in mine]),
        step=step,
        number=number,
        start_ps=np.array([one.start[rows][kept] for one, rows, kept in columns]),
        duration_ps=np.array([one.duration[rows][kept] for one, rows, kept in columns]),
        one_clock=on_gpus,
        blocks=on_gpus or synchronous(opcode) == opcode,
    )


def _by_step(one: _Ran, rows: slice, n_steps: int) -> Ints:
    """Add up durations by step, without the rounding of `bincount`."""
    total = np.zeros(n_steps, np.int64)
    np.add.at(total, one.step[rows], one.duration[rows])
    return total


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """The waits in the matched runs of one collective."""

    wait_ps: Ints | None
    """Picoseconds of each device in each run, shape (n_devices, n_runs); None if unknown."""
    last: Mask | None
    """True where others waited for the device, of the same shape; None if unknown."""
    remark: str
    """Reason why they are unknown, or are at least these; empty if they are known."""


def find_waits(runs: Runs) -> Waits:
    """Find the waits of a collective on one host."""
    groups = groups_of(runs)
    if isinstance(groups, str):
        return Waits(None, None, f"waiting: {groups}")
    wait, last = np.zeros_like(runs.duration_ps), np.zeros(runs.duration_ps.shape, bool)
    for group in groups:
        duration = runs.duration_ps[group]
        if runs.one_clock:
            start = runs.start_ps[group]
            wait[group] = np.clip(start.max(axis=0) - start, 0, duration)
        else:
            wait[group] = duration - duration.min(axis=0)
        last[group] = _last(wait[group])
    return Waits(wait, last, _bound(runs))


def groups_of(runs: Runs) -> list[list[int]] | str:
    """
    Return the groups as indices into the devices, or why they are unknown: global ids of HLO are
    devices only by a device assignment whose ids are the numbers of all devices of the trace.
    """
    if why := _why_unknown(runs):
        return why
    if len(runs.devices) < 2:
        return "one device of this host ran it, and it takes two to compare"
    found = members(runs.facts.groups)
    everyone = list(range(len(runs.devices)))
    if found is not None and len(found) < 2:
        return [everyone]
    ordinals = [int(name.rpartition(":")[2]) for name in runs.devices]
    n_ids = sum(map(len, found or ()))
    if found is None or n_ids != len(runs.assignment) or sorted(runs.assignment) != ordinals:
        return "the trace does not tell which device is in which of its groups"
    if sorted(one for group in found for one in group) != list(range(n_ids)):
        return "its groups do not name each device once"
    places = {ordinal: place for place, ordinal in enumerate(ordinals)}
    return [[places[runs.assignment[one]] for one in group] for group in found]


def waits_over_hosts(runs: Runs, hosts: Sequence[Runs]) -> Waits:
    """Find the waits of a collective on several hosts, by durations."""
    why = _why_unknown_over(hosts)
    if why or not runs.step.size:
        return Waits(None, None, f"waiting: {why or _UNEQUAL}")
    wait = runs.duration_ps - runs.duration_ps.min(axis=0)
    return Waits(wait, _last(wait), _bound(runs))


def _last(wait: Ints) -> Mask:
    """Return the devices that did not wait, in the runs in which another did."""
    last: Mask = (wait == 0) & (wait.max(axis=0) > 0)
    return last


def _why_unknown_over(hosts: Sequence[Runs]) -> str:
    """Return why it is unknown who waits for whom over hosts; empty if all join one group."""
    whys = [why for runs in hosts if (why := _why_unknown(runs))]
    if whys:
        return whys[0]
    groups = {runs.facts.groups for runs in hosts}
    if len(groups) > 1:
        return "its replica groups differ between the hosts"
    found = members(groups.pop())
    if found is None or len(found) > 1:
        return "the traces do not tell which device is in which of its groups"
    return ""


def _bound(runs: Runs) -> str:
    """Return why known waits are at least that; empty if they are exact."""
    n_devices, n_runs = len(runs.devices), int(runs.count.sum())
    n_ids = sum(map(len, members(runs.facts.groups) or ())) or len(runs.assignment)
    if n_ids > n_devices:
        return f"waiting: at least, since {n_devices} of its {plural(n_ids, 'device')} are traced"
    n_unmatched = n_runs - runs.duration_ps.size
    if n_unmatched:
        return f"waiting: at least, since {n_unmatched} of {n_runs} runs have no counterpart"
    return ""


def _why_unknown(runs: Runs) -> str:
    """Return why it is unknown who waits for whom; empty if the groups tell."""
    if not runs.facts.groups:
        return "the trace names no replica groups of it"
    if synchronous(runs.kind) not in JOINS:
        return "a device waits for its own partner alone"
    if not runs.blocks:
        return "it is asynchronous, and its ops do not show when a device entered"
    return "" if runs.step.size else _UNEQUAL
