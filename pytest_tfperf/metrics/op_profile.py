"""Divide device time by module, category and op, with the share of peak that each reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pytest_tfperf.facts.op_times import OpTime, op_table
from pytest_tfperf.facts.roofline import AROUND_OTHERS, rate_of, roofline_table
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.quantities import BYTES, COUNT, FLOP, FLOP_RATE, SECONDS, SHARE
from pytest_tfperf.trace.devices import DeviceSpec
from pytest_tfperf.values import Column, Table

IDLE = "idle"
COLUMNS = (
    Column("module", "module"),
    Column("category", "category"),
    Column("op", "op"),
    Column("occurrences", "occurrences", COUNT),
    Column("self_s", "self", SECONDS),
    Column("share", "share", SHARE),
    Column("flops", "FLOP", FLOP),
    Column("memory", "memory", BYTES),
    Column("flop_rate", "FLOP rate", FLOP_RATE),
    Column("of_peak", "of peak", SHARE),
    Column("of_peak_bandwidth", "of peak bandwidth", SHARE),
)


def analyse(evidence: Evidence) -> Findings:
    """Find the ops that took the devices' time, and what bounds them."""
    if evidence.trace is None or not evidence.device_ops:
        return Findings()
    ops, steps = evidence.device_ops, evidence.steps
    peaks = {(spec.peak_flops, spec.bandwidth) for spec in evidence.device_specs}
    # the ops of all devices are summed, so different devices have no common peak
    spec = evidence.device_specs[0] if len(peaks) == 1 else None
    parts = evidence.device_parts
    busy_ps = sum(int(part.sum()) for part in parts.parts_ps.values())
    idle_s = max(len(parts.names) * int(steps.period_ps.sum()) - busy_ps, 0) * 1e-12
    roofline = roofline_table(ops, spec, steps.n_steps)
    tables = {
        "device_ops": replace(op_table(ops, steps.n_steps), title="ops on the devices"),
        "op_profile": op_profile_table(ops, idle_s, spec, steps.n_steps),
    }
    return Findings(tables=tables | ({"roofline": roofline} if roofline.rows else {}))


def op_profile_table(
    ops: Sequence[OpTime], idle_s: float, spec: DeviceSpec | None, n_steps: int
) -> Table:
    """
    Tabulate modules, their categories and their ops by self time, per step over all devices.

    Args:
        ops: The ops of the devices.
        idle_s: Seconds without an op, over all steps and devices.
        spec: Peak rates of the device, or None.
        n_steps: Number of steps.

    Shares are of the devices' time: the self time of all ops plus `idle_s`.
    """
    whole = sum(op.self_s for op in ops) + idle_s

    def row(module: str, category: str, name: str, some: Sequence[OpTime]) -> tuple[Any, ...]:
        rate, time = rate_of(some, spec), sum(op.self_s for op in some)
        flops, size = (total_cost(some, cost) for cost in ("flops", "bytes"))
        return (
            module,
            category,
            name,
            sum(op.count for op in some) / n_steps,
            time / n_steps,
            time / whole if whole else None,
            None if flops is None else flops / n_steps,
            None if size is None else size / n_steps,
            rate.flops,
            rate.flops_share,
            rate.bandwidth_share,
        )

    rows = [row(*at, some) for at, some in _tree(ops)]
    if idle_s > 0:
        rows.append(
            (IDLE, "", "", None, idle_s / n_steps, idle_s / whole, None, None, None, None, None)
        )
    return Table.of("op profile", COLUMNS, rows)


def total_cost(ops: Sequence[OpTime], cost: str) -> float | None:
    """
    Sum `flops` or `bytes` of the ops, or return None if one is unknown.

    Ops around others do not count, since their cost is that of the inner ops.
    """
    costs = [getattr(op, cost) for op in ops if op.kind not in AROUND_OTHERS]
    return None if None in costs or not costs else float(sum(costs))


def _tree(ops: Sequence[OpTime]) -> Iterator[tuple[tuple[str, str, str], list[OpTime]]]:
    """Yield each (module, category, op) level with its ops, outer levels first."""
    for module, some in _by(ops, lambda op: op.module):
        yield (module, "", ""), some
        for category, few in _by(some, lambda op: op.kind):
            yield (module, category, ""), few
            for name, one in _by(few, lambda op: op.name):
                yield (module, category, name), one


def _by(ops: Sequence[OpTime], key: Callable[[OpTime], str]) -> list[tuple[str, list[OpTime]]]:
    """Group the ops by key, the longest group first."""
    groups: dict[str, list[OpTime]] = {}
    for op in ops:
        groups.setdefault(key(op), []).append(op)
    return sorted(groups.items(), key=lambda item: -sum(op.self_s for op in item[1]))
