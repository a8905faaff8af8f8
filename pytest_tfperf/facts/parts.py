"""Divide each step's time into parts: of host and devices together, and of each device alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.facts.device_ops import (
    KINDS,
    DeviceActivity,
    find_device_activity,
    kinds_by_name,
    kinds_of_spans,
    names_kinds,
    on_device_clock,
)
from pytest_tfperf.facts.host_activity import Activity, find_activity, launches
from pytest_tfperf.facts.steps import Steps, own_steps
from pytest_tfperf.facts.waits import input_waits, pushed_input
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.devices import TPU, accelerators, device_name, tpu_ops
from pytest_tfperf.trace.events import metadata_texts, self_times
from pytest_tfperf.trace.intervals import EMPTY, Spans, covered, merge, subtract, within
from pytest_tfperf.trace.xspace import Plane, Trace
from pytest_tfperf.values import PARTS

_OWN_WORK = ("device_compute", "output", "input")
NOT_EXECUTING = frozenset(
    {"infeed", "outfeed", "host send", "host send-done", "host recv", "host recv-done"}
    | {"megacore fusion", "host outfeed"}
)
"""
Categories of a TPU's ops in whose own time the core waits for the host, or for its other core.

XProf's duty cycle leaves out all but `host outfeed` (IsOffDutyOp of openxla/xla, xla_op_utils.h).
"""


@dataclass(frozen=True, slots=True, eq=False)
class Breakdown:
    """Parts of each step; they sum to the periods."""

    parts_ps: dict[str, Ints]
    """By part of `values.PARTS`, each of shape (n_steps,)."""
    period_ps: Ints
    device: DeviceActivity
    host: HostSpans
    decided_by: Ints
    """Index of the device that decides a step's parts, -1 for all together, shape (n_steps,)."""

    def share(self, part: str) -> float:
        """Return a part of all steps ÷ their periods."""
        return float(self.parts_ps[part].sum() / max(self.period_ps.sum(), 1))

    def spans_of(self, step: int, begin_ps: int, end_ps: int) -> list[tuple[str, Spans]]:
        """Return the disjoint spans of a step's parts between these times, `other` excluded."""
        place = int(self.decided_by[step])
        device = self.device.spans if place < 0 else self.device.each[place]
        near = {kind: within(spans, begin_ps, end_ps) for kind, spans in device.items()}
        host = self.host.within(begin_ps, end_ps)
        return list(_exclusive(host, near, self.device.n_devices))


def break_down(trace: Trace, steps: Steps, waits: Spans | None = None) -> Breakdown:
    """
    Divide each step of a host into parts, an instant being of the first in `_in_order`. An input
    wait has no busy device and, without devices, no model op on another thread. Devices of one
    collective wait for the slowest, so the step has the parts of that which waits longest for
    input.
    """
    device = find_device_activity(trace)
    waits = input_waits(trace) if waits is None else waits
    host = HostSpans(
        merge(waits),
        merge(pushed_input(trace)),
        launches(trace) if device.n_devices else merge(),
        find_activity(trace),
    )
    parts = _parts(steps, host, device.spans, device.n_devices)
    joined = [covered(own["collective"], steps.start_ps, steps.end_ps) > 0 for own in device.each]
    together = np.sum(joined, axis=0) > 1 if joined else np.zeros(len(steps), bool)
    decided_by = np.full(len(steps), -1)
    if together.any():
        for place, (own, in_collective) in enumerate(zip(device.each, joined, strict=True)):
            alone = _parts(steps, host, own, device.n_devices)
            worse = together & in_collective & (alone["input"] > parts["input"])
            parts = {part: np.where(worse, alone[part], parts[part]) for part in PARTS}
            decided_by[worse] = place
    return Breakdown(parts, steps.period_ps, device, host, decided_by)


@dataclass(frozen=True, slots=True, eq=False)
class HostSpans:
    """Activity of the host that parts are made of."""

    waits: Spans
    pushed: Spans
    """Input that the host gives other than by tf.data's iterators."""
    launches: Spans
    activity: Activity

    def within(self, begin_ps: int, end_ps: int) -> HostSpans:
        """Return the activity of a window, in picoseconds, the end excluded."""
        waits, pushed, launched, model, runtime, compiled = (
            within(spans, begin_ps, end_ps)
            for spans in (
                self.waits,
                self.pushed,
                self.launches,
                self.activity.model,
                self.activity.runtime,
                self.activity.compile,
            )
        )
        return HostSpans(waits, pushed, launched, Activity(model, runtime, compiled))


def _parts(
    steps: Steps, host: HostSpans, device: dict[str, Spans], n_devices: int
) -> dict[str, Ints]:
    """Return the parts of each step, each of shape (n_steps,)."""
    parts = {part: np.zeros(len(steps), np.int64) for part in PARTS}
    for part, spans in _exclusive(host, device, n_devices):
        parts[part] = parts[part] + covered(spans, steps.start_ps, steps.end_ps)
    parts["other"] = steps.period_ps - sum(parts.values(), np.zeros(len(steps), np.int64))
    return parts


def _exclusive(
    host: HostSpans, device: dict[str, Spans], n_devices: int
) -> Iterator[tuple[str, Spans]]:
    """Yield the parts with spans that no part before has; a part may come twice."""
    taken: Spans = merge()
    for part, spans in _in_order(host, device, n_devices):
        yield part, subtract(spans, taken)
        taken = merge(taken, spans)


def _in_order(host: HostSpans, device: dict[str, Spans], n_devices: int) -> list[tuple[str, Spans]]:
    activity = host.activity
    waiting = host.waits if n_devices else subtract(host.waits, activity.model)
    return [
        *((kind, spans) for kind, spans in device.items() if kind != "input"),
        ("input", waiting),
        ("input", merge(device["input"], host.pushed)),
        ("kernel_launch", host.launches),
        ("compile", activity.compile),
        ("host_compute", merge(activity.model, activity.runtime)),
    ]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceParts:
    """Picoseconds of each active device by step and part, each of shape (n_devices, n_steps)."""

    names: tuple[str, ...]
    steps: tuple[str, ...]
    n_steps: int
    """With those that loop inside others."""
    period_ps: Ints
    """Length of each step on the device."""
    parts_ps: dict[str, Ints]
    """Picoseconds by kind of `KINDS`; an instant of a GPU has the first kind that holds."""
    working_ps: Ints
    """
    Picoseconds of the device's own work: without what it only does in collectives and transfers
    between devices, in which a fast device waits for a slow one.
    """
    executing_ps: Ints
    """
    Picoseconds in which the device executes, with overlapping work counted once; without the own
    time of a TPU's ops of `NOT_EXECUTING`.
    """
    names_kinds: bool
    """False if a TPU's ops have no category, so that they all pass for compute."""


def find_device_parts(trace: Trace, steps: Steps) -> DeviceParts:
    """Divide the steps, as each active device ran them, into compute, copies and collectives."""
    names, periods, rows, works, runs, told = [], [], [], [], [], True
    for plane in accelerators(trace):
        own = own_steps(plane, steps)
        of_device = _of_core if TPU.match(plane.name) else _of_gpu
        found, work, executing = of_device(plane, own)
        if not any(part.any() for part in found.values()):
            continue
        names.append(device_name(plane))
        periods.append(own.period_ps)
        rows.append(found)
        works.append(work)
        runs.append(executing)
        told = told and names_kinds(plane)
    shape = (len(names), len(steps))
    parts = {kind: np.array([row[kind] for row in rows], np.int64).reshape(shape) for kind in KINDS}
    period, working, executing = (
        np.array(some, np.int64).reshape(shape) for some in (periods, works, runs)
    )
    return DeviceParts(
        tuple(names), steps.names, steps.n_steps, period, parts, working, executing, told
    )


def _of_gpu(plane: Plane, steps: Steps) -> tuple[dict[str, Ints], Ints, Ints]:
    """Return the parts of the steps on a GPU, its own work, and all that it executes."""
    taken, found, own = EMPTY, {}, EMPTY
    for kind, spans in kinds_of_spans(plane):
        merged = merge(spans)
        alone = subtract(merged, taken)
        found[kind] = covered(alone, steps.start_ps, steps.end_ps)
        taken = merge(taken, merged)
        own = merge(own, merged) if kind in _OWN_WORK else own
    working, executing = (covered(some, steps.start_ps, steps.end_ps) for some in (own, taken))
    return found, working, executing


def _of_core(plane: Plane, steps: Steps) -> tuple[dict[str, Ints], Ints, Ints]:
    """
    Return the same of a TPU core on its own clock, since on the trace's the errors of single steps
    are larger than differences between cores.
    """
    ops, kind_of = tpu_ops(plane), kinds_by_name(plane)
    step, own_ps = steps.of(ops.start), self_times(on_device_clock(ops))
    kinds = np.array([KINDS.index(kind_of(name)) for name in plane.names], np.int64)
    kind = kinds[plane.name_index[ops.rows]]
    total = np.zeros((len(KINDS), len(steps)), np.int64)
    inside = step >= 0
    np.add.at(total, (kind[inside], step[inside]), own_ps[inside])
    found = dict(zip(KINDS, total, strict=True))
    category = metadata_texts(plane, "hlo_category")
    waits = np.array([category.get(name) in NOT_EXECUTING for name in plane.names], bool)
    executing = total.sum(axis=0)
    waiting = inside & waits[plane.name_index[ops.rows]]
    np.subtract.at(executing, step[waiting], own_ps[waiting])
    return found, np.sum([found[own] for own in _OWN_WORK], axis=0), executing
