"""
Compare devices with their peaks: FLOP rates, bandwidths, and the bound of each op.

The model is Williams, Waterman and Patterson, "Roofline" (Communications of the ACM 52/4, 2009). An
op of intensity I runs at most at min(peak FLOP rate, I x bandwidth). XLA counted the FLOPs and
bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_tfperf.facts.op_times import OpTime
from pytest_tfperf.quantities import BANDWIDTH, FLOP, FLOP_RATE, SECONDS, SHARE
from pytest_tfperf.trace.devices import DeviceSpec
from pytest_tfperf.values import Column, Source, Table, Value

AROUND_OTHERS = frozenset({"while", "conditional", "call", "megacore fusion"})
"""Categories of ops that run others."""
MEMORY, COMPUTE = "memory", "compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """
    The rate of one op or several; a field is None if unknown, or above the device's peak.

    A rate above the peak means wrong counts or a wrong clock.
    """

    flops: float | None = None
    """FLOP/s."""
    bandwidth: float | None = None
    """Bytes/s."""
    intensity: float | None = None
    """FLOP per byte."""
    flops_share: float | None = None
    """Share of the peak FLOP rate."""
    bandwidth_share: float | None = None
    """Share of the peak bandwidth."""

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
    Rate the ops of devices of one kind, by their self time.

    Ops around others count with their time only, since the inner ops have the cost. Ops that start
    or await asynchronous work do not count, since that work takes another time. XProf rates both.
    """
    counted = [op for op in ops if not is_async(op)]
    time = sum(op.self_s for op in counted)
    flops, size = (
        _total([getattr(op, cost) for op in counted if op.kind not in AROUND_OTHERS])
        for cost in ("flops", "bytes")
    )
    flops_rate, bandwidth = (
        None if cost is None or time <= 0 else cost / time for cost in (flops, size)
    )
    flops_share = _share(flops_rate, spec.peak_flops if spec else None)
    bandwidth_share = _share(bandwidth, spec.bandwidth if spec else None)
    return Rate(
        flops=None if spec and _above(flops_rate, spec.peak_flops) else flops_rate,
        bandwidth=None if spec and _above(bandwidth, spec.bandwidth) else bandwidth,
        intensity=flops / size if flops is not None and size else None,
        flops_share=flops_share,
        bandwidth_share=bandwidth_share,
    )


def is_async(op: OpTime) -> bool:
    """Return whether an op starts or awaits asynchronous work."""
    return op.kind.endswith(("-start", "-done"))


def roofline_table(ops: Sequence[OpTime], spec: DeviceSpec | None, n_steps: int) -> Table:
    """
    Tabulate the ops of known cost by self time: rates, bound, and share of the peak.

    Args:
        ops: The ops of the devices.
        spec: Peak rates of the device, or None.
        n_steps: Number of steps.
    """
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


def flops_utilization(
    flops: float | None, period_s: float | None, specs: Sequence[DeviceSpec]
) -> Value:
    """
    Return the share of the devices' peak FLOP rate that steps reach.

    Args:
        flops: FLOPs of a step on all these devices, or None.
        period_s: Seconds of a step.
        specs: Peak rates of the devices.

    Returns:
        `flops` ÷ (`period_s` x sum of the peaks).
    """
    peaks = [spec.peak_flops for spec in specs]
    if flops is None or not period_s:
        return Value.unknown(
            "flops_utilization",
            "the FLOPs of a step are not known"
            if flops is None
            else "the time of a step is not known",
        )
    if not peaks or None in peaks:
        names = ", ".join(sorted({spec.name for spec in specs if spec.peak_flops is None}))
        return Value.unknown(
            "flops_utilization",
            f"the peak FLOP rate is not known of {names}" if names else "there is no accelerator",
        )
    peak = sum(peak for peak in peaks if peak is not None)
    share = flops / (period_s * peak)
    if share > 1:
        why = (
            f"{flops / period_s:.3g} FLOP/s would be {share:.2f} times the peak of {peak:.3g} "
            "FLOP/s: the count or the clock is wrong"
        )
        return Value.unknown("flops_utilization", why)
    return Value.of(
        "flops_utilization",
        share,
        Source.TRACE,
        peak_flops=peak,
        device=specs[0].name,
        n_devices=len(specs),
    )


def _total(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known and len(known) == len(costs) else None


def _above(rate: float | None, peak: float | None) -> bool:
    return rate is not None and peak is not None and rate > peak


def _share(rate: float | None, peak: float | None) -> float | None:
    return None if rate is None or peak is None or rate > peak else rate / peak
