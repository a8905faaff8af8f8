"""Find the collectives of a host's devices in the steps, and match them across the devices."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.facts.device_ops import instruction, on_device_clock
from pytest_tfperf.facts.device_planes import kinds_by_name
from pytest_tfperf.facts.on_devices import own_steps
from pytest_tfperf.facts.op_times import HLO_OP
from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.hlo.collective_ops import (
    Collective,
    collective_in,
    collective_of,
    is_collective,
    synchronous,
)
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.devices import GPU, accelerators, device_name, stream_events, tpu_ops
from pytest_tfperf.trace.events import Events, labels, metadata_texts
from pytest_tfperf.trace.hlo_modules import live_modules, modules_of
from pytest_tfperf.trace.xspace import Plane, Trace

_PROGRAM = re.compile(r"\((\d+)\)\Z")
Key = tuple[str, str]
"""Function of the program, and instruction; without HLO the name of the kernel alone."""
_Program = tuple[dict[str, Collective], tuple[int, ...]]
"""Collectives by instruction, and ids of the devices by global id of HLO."""


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """
    The runs of one collective in the steps, on the devices that ran it.

    A run is matched across the devices by its step and its place among the runs of that step. Runs
    of a step in which the devices ran it unequally often are not matched.
    """

    key: Key
    """Function and instruction."""
    facts: Collective
    """Opcode, bytes and groups, as far as the trace tells them."""
    assignment: tuple[int, ...]
    """Ids of the devices by global id of HLO; empty if the trace does not tell."""
    devices: tuple[str, ...]
    """Names of the devices that ran it."""
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
    Find the collectives, sends and receives of a host's devices in the steps.

    Returns:
        The collectives in the order in which they first ran, and the number of runs outside of the
        steps.
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
        functions = {
            match[1]: name.partition("(")[0]
            for name in plane.names
            if (match := _PROGRAM.search(name))
        }
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
