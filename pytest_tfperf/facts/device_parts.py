"""Divide the steps of each device alone into parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pytest_tfperf.facts.device_ops import (
    KINDS,
    kinds_by_name,
    kinds_of_spans,
    names_kinds,
    on_device_clock,
)
from pytest_tfperf.facts.on_devices import own_steps
from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.devices import TPU, accelerators, device_name, tpu_ops
from pytest_tfperf.trace.events import self_times
from pytest_tfperf.trace.intervals import EMPTY, covered, merge, subtract
from pytest_tfperf.trace.xspace import Plane, Trace

_OWN_WORK = ("device_compute", "output", "input")


@dataclass(frozen=True, slots=True, eq=False)
class DeviceParts:
    """Picoseconds of each active device by step and part, each of shape (n_devices, n_steps)."""

    names: tuple[str, ...]
    """Names of the devices."""
    steps: tuple[str, ...]
    """Names of the steps."""
    n_steps: int
    """Number of steps, including those that loop inside others."""
    period_ps: Ints
    """Length of each step on the device."""
    parts_ps: dict[str, Ints]
    """Picoseconds by kind of `KINDS`; an instant of a GPU has the first kind that holds."""
    working_ps: Ints
    """
    Picoseconds of the device's own work: without what it only does in collectives and transfers
    between devices, in which a fast device waits for a slow one.
    """
    names_kinds: bool
    """False if a TPU's ops have no category, so that they all pass for compute."""


def find_device_parts(trace: Trace, steps: Steps) -> DeviceParts:
    """Divide the steps, as each active device ran them, into compute, copies and collectives."""
    names, periods, rows, works, told = [], [], [], [], True
    for plane in accelerators(trace):
        own = own_steps(plane, steps)
        found, work = _of_core(plane, own) if TPU.match(plane.name) else _of_gpu(plane, own)
        if not any(part.any() for part in found.values()):
            continue
        names.append(device_name(plane))
        periods.append(own.period_ps)
        rows.append(found)
        works.append(work)
        told = told and names_kinds(plane)
    shape = (len(names), len(steps))
    parts = {kind: np.array([row[kind] for row in rows], np.int64).reshape(shape) for kind in KINDS}
    period, working = (np.array(some, np.int64).reshape(shape) for some in (periods, works))
    return DeviceParts(tuple(names), steps.names, steps.n_steps, period, parts, working, told)


def _of_gpu(plane: Plane, steps: Steps) -> tuple[dict[str, Ints], Ints]:
    """Return the parts of the steps on a GPU, and its own work."""
    taken, found, own = EMPTY, {}, EMPTY
    for kind, spans in kinds_of_spans(plane):
        merged = merge(spans)
        alone = subtract(merged, taken)
        found[kind] = covered(alone, steps.start_ps, steps.end_ps)
        taken = merge(taken, merged)
        own = merge(own, merged) if kind in _OWN_WORK else own
    return found, covered(own, steps.start_ps, steps.end_ps)


def _of_core(plane: Plane, steps: Steps) -> tuple[dict[str, Ints], Ints]:
    """
    Return the parts of the steps on a TPU core, and its own work, by self times on its own clock.

    On the trace's clock, errors of single steps are larger than differences between cores.
    """
    ops, kind_of = tpu_ops(plane), kinds_by_name(plane)
    step, own_ps = steps.of(ops.start), self_times(on_device_clock(ops))
    kinds = np.array([KINDS.index(kind_of(name)) for name in plane.names], np.int64)
    kind = kinds[plane.name_index[ops.rows]]
    total = np.zeros((len(KINDS), len(steps)), np.int64)
    inside = step >= 0
    np.add.at(total, (kind[inside], step[inside]), own_ps[inside])
    found = dict(zip(KINDS, total, strict=True))
    return found, np.sum([found[own] for own in _OWN_WORK], axis=0)
