"""A profile in a few sentences: the parts of its steps, the bottleneck, the key figures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfperf.advice.thresholds import THRESHOLDS
from pytest_tfperf.op_types import DATA_SIDE
from pytest_tfperf.quantities import format_quantity
from pytest_tfperf.results import Profile, part_title
from pytest_tfperf.text import plural
from pytest_tfperf.values import PARTS, UNEXPLAINED, Source, Table

if TYPE_CHECKING:
    from pytest_tfperf.metrics.multi_host import AnalysedTrace

_INPUT = "input"
_TAKES = {
    "compile": "Compilation takes {}",
    "output": "Copying results to the host takes {}",
    "input": "Waiting for input takes {}",
    "kernel_launch": "Launching kernels takes {}",
    "host_compute": "Ops on the host take {}",
    "collective": "Collectives that nothing hides take {}",
    "device_to_device": "Copies between devices take {}",
    "device_compute": "Computing on the device takes {}",
    "other": "Python and the loop take {}",
}
_FIGURES = (
    ("flops_utilization", "FLOPs {} of peak"),
    ("half_precision", "16-bit {}"),
    ("tensor_core_time", "tensor cores {}"),
    ("device_busy", "device busy {}"),
    ("xla_launches", "XLA launches {}"),
    ("kernel_launches", "kernels {}"),
    ("eager_ops", "eager ops {}"),
    ("retraces", "retraces {}"),
    ("xla_compiles", "recompilations {}"),
)
"""Metrics of the line of key figures, and their words."""
_TOP = 3
_NUMBER = re.compile(r" \d+\Z")


class Part(NamedTuple):
    """One part of the mean step."""

    key: str
    """Key in `PARTS`."""
    title: str
    mean_s: float
    share: float


def parts_of(profile: Profile) -> list[Part]:
    """Return the parts of the mean step that take time, the largest first."""
    period_s = sum(step.period_s for step in profile.steps)
    if period_s <= 0:
        return []
    sums = {part: sum(step.parts_s.get(part, 0.0) for step in profile.steps) for part in PARTS}
    rows = [
        Part(part, part_title(part, profile), total_s / len(profile.steps), total_s / period_s)
        for part, total_s in sums.items()
        if total_s > 0
    ]
    return sorted(rows, key=lambda row: -row.share)


def steps_title(profile: Profile) -> str:
    """Describe the steps and their origin: `20 steps of 9.33 ms (train, from step_num)`."""
    steps = profile.steps
    if not steps:
        return "steps of unknown time"
    title = plural(len(steps), "step")
    periods_s = [step.period_s for step in steps]
    names = {_NUMBER.sub("", step.name) for step in steps}
    common = [name for name in names if len(names) == 1 and name and not name.isdigit()]
    origin = [*common, f"from {profile.step_source}"]
    mean_s = sum(periods_s) / len(steps)
    return f"{title} of {format_quantity(mean_s, 's')} ({', '.join(origin)})"


def facts_of(analysed: AnalysedTrace) -> str:
    """Return framework, devices, steps, and how many events that look like steps are none."""
    profile = analysed.profile
    dropped = f"{plural(profile.n_dropped, 'other event')} dropped" if profile.n_dropped else ""
    facts = (analysed.framework, analysed.devices, steps_title(profile), dropped)
    return ", ".join(filter(None, facts))


def verdict(profile: Profile, devices: str = "") -> str:
    """Return the bottleneck of the steps in one or two sentences; devices are as in `8 GPUs`."""
    parts = parts_of(profile)
    if not parts:
        return "The trace shows no time of a step."
    idle = _idle(profile, devices)
    return " ".join(filter(None, (idle, _bottleneck(profile, parts))))


def key_figures(profile: Profile) -> list[str]:
    """Return the known figures that tell most: `FLOPs 0.09 % of peak`, `retraces 0`."""
    figures = []
    for name, words in _FIGURES:
        value = profile.metrics.get(name)
        if value is not None and value.number is not None:
            figures.append(words.format(format_quantity(value.number, value.unit)))
    return [*figures, *_memory(profile)]


def top_ops(profile: Profile) -> tuple[str, list[str]]:
    """Return the name of the ops' place, and those that take most time there, with shares."""
    for key, place in (("device_ops", "the devices"), ("host_ops", "the host")):
        table = profile.tables.get(key)
        found = _largest(table, THRESHOLDS.top_op) if table is not None else []
        if found:
            return place, found
    return "", []


def figures_and_ops(profile: Profile) -> Iterator[str]:
    """Yield a line of the key figures and one of the ops that take most time, if known."""
    if figures := key_figures(profile):
        yield f"Key figures: {' · '.join(figures)}"
    place, ops = top_ops(profile)
    if ops:
        yield f"Top ops of {place}: {', '.join(ops)}"


def _idle(profile: Profile, devices: str) -> str:
    busy = profile.metrics.get("device_busy")
    if busy is None or busy.number is None or 1 - busy.number < THRESHOLDS.idle:
        return ""
    n_devices = busy.detail.get("n_devices", 1)
    kind = "GPU" if "GPU" in devices else "TPU" if "TPU" in devices else "device"
    subject = f"The {kind} is" if n_devices == 1 else f"All {n_devices} {kind}s are"
    return f"{subject} idle {format_quantity(1 - busy.number, '0..1')} of the step."


def _bottleneck(profile: Profile, parts: list[Part]) -> str:
    """Return a sentence on the largest part, or on the two largest if neither takes half."""
    waits = profile.metrics.get("input_bound")
    seen = sum(part.share for part in parts if part.key == _INPUT)
    hidden = waits is not None and waits.source is Source.CORRECTED
    least = max(seen + THRESHOLDS.hidden, THRESHOLDS.bottleneck)
    if waits is not None and hidden and (waits.number or 0.0) > least:
        share = format_quantity(waits.number or 0.0, "0..1")
        return f"Waiting for input takes {share} of the step once its buffers are empty."
    first, *others = parts
    second = [] if first.share >= THRESHOLDS.bottleneck else others[:1]
    return " ".join([f"{_takes(first)} of the step.", *(f"{_takes(part)}." for part in second)])


def _takes(part: Part) -> str:
    if part.title == UNEXPLAINED:
        return f"The trace does not explain {format_quantity(part.share, '0..1')}"
    return _TAKES[part.key].format(format_quantity(part.share, "0..1"))


def _memory(profile: Profile) -> Iterable[str]:
    """Yield the memory at its peak, of the allocator's capacity if that is known."""
    value = profile.metrics.get("peak_memory")
    if value is None or value.number is None:
        return
    table = profile.tables.get("memory")
    records = table.records() if table is not None else []
    if records and records[0].get("capacity"):
        held, capacity = (format_quantity(records[0][key], "bytes") for key in ("peak", "capacity"))
        yield f"allocated {held} of {capacity}"
        return
    most = "up to " if value.detail.get("bounds") else ""
    yield f"memory {most}{format_quantity(value.number, value.unit)}"


def _largest(table: Table, least: float) -> list[str]:
    """Name the ops with the largest shares of the first side of a table of ops."""
    records = [record for record in table.records() if record.get("share")]
    sides = [record["where"] for record in records if record["where"] != DATA_SIDE][:1]
    of_side = [record for record in records if record["where"] in sides]
    return [
        f"{record['op']} {format_quantity(record['share'], '0..1')}"
        for record in of_side[:_TOP]
        if record["share"] >= least
    ]
