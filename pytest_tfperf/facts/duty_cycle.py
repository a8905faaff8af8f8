"""Measure the share of time in which TPU chips worked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_tfperf.protobuf import Message
from pytest_tfperf.trace.devices import tpu_ops, tpus
from pytest_tfperf.trace.events import Events, metadata_texts, plane_stats
from pytest_tfperf.trace.intervals import Spans, merge
from pytest_tfperf.trace.xspace import Plane, Trace

# while these run, a chip waits for the host or for what goes on beside (openxla/xprof,
# xplane_to_op_metrics_db.cc)
_WAITING = frozenset(
    {
        "infeed",
        "outfeed",
        "host send",
        "host send-done",
        "host recv",
        "host recv-done",
        "async-done",
        "megacore fusion",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DutyCycle:
    """
    Work of one chip over the whole trace.

    XProf calls `working_s` ÷ `span_s` the device duty cycle. Its device idle time lies between ops.
    """

    chip: int
    """Number of the chip."""
    working_s: float
    """Seconds in which the chip worked."""
    busy_s: float
    """Seconds in which any of its ops ran."""
    span_s: float
    """Seconds from its first event to its last."""
    ops_span_s: float
    """Seconds from its first op to its last."""


def duty_cycles(trace: Trace) -> list[DutyCycle]:
    """Measure the TPU chips of a host; a chip works while any of its cores does."""
    chips: dict[int, list[Plane]] = {}
    for plane in tpus(trace):
        chips.setdefault(_chip(plane), []).append(plane)
    return [_duty_cycle(chip, planes) for chip, planes in sorted(chips.items())]


def duty_cycle(cycles: Sequence[DutyCycle]) -> float | None:
    """Return the share of time in which chips worked, or None without chips."""
    span = sum(cycle.span_s for cycle in cycles)
    return sum(cycle.working_s for cycle in cycles) / span if span else None


def idle_share(cycles: Sequence[DutyCycle]) -> float | None:
    """Return the idle share between the first and the last op of chips, or None without chips."""
    span = sum(cycle.ops_span_s for cycle in cycles)
    return 1 - sum(cycle.busy_s for cycle in cycles) / span if span else None


def _duty_cycle(chip: int, planes: Sequence[Plane]) -> DutyCycle:
    working: list[Spans] = []
    busy: list[Spans] = []
    seen: list[Spans] = []
    for plane in planes:
        ops, category = tpu_ops(plane), metadata_texts(plane, "hlo_category")
        waiting = {name for name, kind in category.items() if kind in _WAITING}
        working.append(ops.named(lambda name, waiting=waiting: name not in waiting).spans)  # type: ignore[misc]
        busy.append(ops.spans)
        seen += [ops.spans, Events.of(plane).on_lines("XLA Modules").spans]
    active = merge(*busy)
    return DutyCycle(
        chip=chip,
        working_s=_length(merge(*working)),
        busy_s=_length(active),
        span_s=_hull(merge(*seen)),
        ops_span_s=_hull(active),
    )


def _length(spans: Spans) -> float:
    return float((spans[1] - spans[0]).sum()) * 1e-12


def _hull(spans: Spans) -> float:
    return float(spans[1][-1] - spans[0][0]) * 1e-12 if spans[0].size else 0.0


def _chip(plane: Plane) -> int:
    """
    Return the chip of a core: CoreDetails.local_chip_id = 4 (openxla/xprof, op_stats.proto).

    Without it each core counts as a chip.
    """
    details = plane_stats(plane).get("core_details")
    if not isinstance(details, bytes):
        return int(plane.name.rpartition(":")[2])
    message = Message(details, plane.name)
    return next(
        (
            value
            for number, wire, value, _ in message.fields(0, len(details), "CoreDetails")
            if (number, wire) == (4, 0)
        ),
        0,
    )
