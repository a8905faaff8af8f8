"""
Divide device time by module, category and op, with the share of the device's peaks of each.

The model is Williams, Waterman and Patterson, "Roofline" (Communications of the ACM 52/4, 2009). An
op of intensity I runs at most at min(peak FLOP rate, I x bandwidth). XLA counted the FLOPs and
bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pytest_tfperf.facts.op_times import OpTime, op_table
from pytest_tfperf.metrics.evidence import Evidence, Findings
from pytest_tfperf.quantities import BANDWIDTH, BYTES, COUNT, FLOP, FLOP_RATE, SECONDS, SHARE
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
AROUND_OTHERS = frozenset({"while", "conditional", "call", "megacore fusion"})
"""Categories of ops that run others."""
MEMORY, COMPUTE = "memory", "compute"


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
    Tabulate modules, categories and ops by self time per step; shares are of that of all ops plus
    `idle_s`, the seconds without an op over all steps and devices.
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
    """Sum `flops` or `bytes` without ops around others, which repeat it; None if one is unknown."""
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


class Rate(NamedTuple):
    """
    The rate of one op or several; a field is None if unknown, or above the device's peak, which
    means wrong counts or a wrong clock.
    """

    flops: float | None
    """FLOP/s."""
    bandwidth: float | None
    """Bytes/s."""
    intensity: float | None
    """FLOP per byte."""
    flops_share: float | None
    """Share of the peak FLOP rate."""
    bandwidth_share: float | None

    @property
    def bound(self) -> str | None:
        """The resource that bounds the op, or None without peaks."""
        if self.flops_share is None and self.bandwidth_share is None:
            return None
        return COMPUTE if (self.flops_share or 0.0) > (self.bandwidth_share or 0.0) else MEMORY

    @property
    def roof_share(self) -> float | None:
        """The share of the nearer peak, or None."""
        shares = [share for share in (self.flops_share, self.bandwidth_share) if share is not None]
        return max(shares, default=None)


def rate_of(ops: Sequence[OpTime], spec: DeviceSpec | None) -> Rate:
    """
    Rate the ops of devices of one kind, by their self time; ops around others have no own cost, and
    asynchronous ones, whose work takes another time, do not count. XProf rates both.
    """
    counted = [op for op in ops if not is_async(op)]
    time = sum(op.self_s for op in counted)
    flops, size = (total_cost(counted, cost) for cost in ("flops", "bytes"))
    flops_rate, flops_share = _rated(flops, time, spec.peak_flops if spec else None)
    bandwidth, bandwidth_share = _rated(size, time, spec.bandwidth if spec else None)
    intensity = flops / size if flops is not None and size else None
    return Rate(flops_rate, bandwidth, intensity, flops_share, bandwidth_share)


def _rated(
    cost: float | None, time: float, peak: float | None
) -> tuple[float | None, float | None]:
    """Return a cost a second, None above the peak, and its share of the peak."""
    rate = None if cost is None or time <= 0 else cost / time
    if rate is None or (peak is not None and rate > peak):
        return None, None
    return rate, None if peak is None else rate / peak


def is_async(op: OpTime) -> bool:
    """Return whether an op starts or awaits asynchronous work."""
    return op.kind.endswith(("-start", "-done"))


def roofline_table(ops: Sequence[OpTime], spec: DeviceSpec | None, n_steps: int) -> Table:
    """Tabulate the ops of known cost by self time: rates, bound, and share of the peak."""
    known = [
        (op, rate_of([op], spec))
        for op in sorted(ops, key=lambda op: -op.self_s)
        if (op.flops or op.bytes) and not is_async(op) and op.kind not in AROUND_OTHERS
    ]
    return Table.of_each(
        "roofline",
        known,
        [
            (Column("op", "op"), lambda one: one[0].name),
            (Column("category", "category"), lambda one: one[0].kind),
            (Column("self_s", "self", SECONDS), lambda one: one[0].self_s / n_steps),
            (
                Column("flops", "FLOP", FLOP),
                lambda one: None if one[0].flops is None else one[0].flops / n_steps,
            ),
            (Column("flop_rate", "FLOP rate", FLOP_RATE), lambda one: one[1].flops),
            (Column("bandwidth", "bandwidth", BANDWIDTH), lambda one: one[1].bandwidth),
            (Column("flop_per_byte", "FLOP per byte"), lambda one: one[1].intensity),
            (Column("bound_by", "bound by"), lambda one: one[1].bound),
            (
                Column("share_of_the_roof", "share of the roof", SHARE),
                lambda one: one[1].roof_share,
            ),
        ],
    )
