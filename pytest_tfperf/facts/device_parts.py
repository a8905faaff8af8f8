"""Divide the steps of each device alone into parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pytest_tfperf.facts.device_ops import on_device_clock
from pytest_tfperf.facts.device_planes import KINDS, kinds_by_name, kinds_of_spans, names_kinds
from pytest_tfperf.facts.on_devices import own_steps
from pytest_tfperf.facts.steps import Steps
from pytest_tfperf.protobuf import Ints
from pytest_tfperf.trace.devices import TPU, accelerators, device_name, tpu_ops
from pytest_tfperf.trace.events import self_times
from pytest_tfperf.trace.intervals import EMPTY, covered, merge, subtract
from pytest_tfperf.trace.xspace import Plane, Trace


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
    names_kinds: bool
    """False if a TPU's ops have no category, so that they all pass for compute."""


def find_device_parts(trace: Trace, steps: Steps) -> DeviceParts:
    """Divide the steps, as each active device ran them, into compute, copies and collectives."""
    names, periods, rows, told = [], [], [], True
    for plane in accelerators(trace):
        own = own_steps(plane, steps)
        found = _of_core(plane, own) if TPU.match(plane.name) else _of_gpu(plane, own)
        if not any(part.any() for part in found.values()):
            continue
        names.append(device_name(plane))
        periods.append(own.period_ps)
        rows.append(found)
        told = told and names_kinds(plane)
    shape = (len(names), len(steps))
    parts = {kind: np.array([row[kind] for row in rows], np.int64).reshape(shape) for kind in KINDS}
    period = np.array(periods, np.int64).reshape(shape)
    return DeviceParts(tuple(names), steps.names, steps.n_steps, period, parts, told)


def _of_gpu(plane: Plane, steps: Steps) -> dict[str, Ints]:
    taken, found = EMPTY, {}
    for kind, spans in kinds_of_spans(plane):
        merged = merge(spans)
        alone = subtract(merged, taken)
        found[kind] = covered(alone, steps.start_ps, steps.end_ps)
        taken = merge(taken, merged)
    return found


def _of_core(plane: Plane, steps: Steps) -> dict[str, Ints]:
    """Measure a TPU core by the self times of its ops on its own clock, as `busy_times` does."""
    ops, kind_of = tpu_ops(plane), kinds_by_name(plane)
    step, own_ps = steps.of(ops.start), self_times(on_device_clock(ops))
    kinds = np.array([KINDS.index(kind_of(name)) for name in plane.names], np.int64)
    kind = kinds[plane.name_index[ops.rows]]
    total = np.zeros((len(KINDS), len(steps)), np.int64)
    inside = step >= 0
    np.add.at(total, (kind[inside], step[inside]), own_ps[inside])
    return dict(zip(KINDS, total, strict=True))
