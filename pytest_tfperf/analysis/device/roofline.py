"""
What the devices did of what they can: FLOP rates, bandwidths, and which of the two bounds each op.

The model is that of Williams, Waterman and Patterson, "Roofline" (Communications of the ACM 52/4, 2009): an op of intensity I runs at
most at min(peak FLOP rate, I x bandwidth). FLOPs and bytes are those that XLA counted for its instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_tfperf.analysis.host.op_times import OpTime
from pytest_tfperf.metrics import BANDWIDTH, FLOP, FLOP_RATE, SECONDS, SHARE
from pytest_tfperf.trace.device_spec import DeviceSpec
from pytest_tfperf.values import Column, Source, Table, Value

AROUND_OTHERS = frozenset({"while", "conditional", "call", "megacore fusion"})
"""Categories of ops that run others."""
MEMORY, COMPUTE = "memory", "compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """
    What an op, or several, reached: FLOP/s, bytes/s, FLOP per byte, the shares of the device's peaks, and which of them bounds it.

    Everything is None where it is not known, or would be above what the device can do: then counts or clock are wrong.
    """

    flops: float | None = None
    bandwidth: float | None = None
    intensity: float | None = None
    flops_share: float | None = None
    bandwidth_share: float | None = None

    @property
    def bound(self) -> str | None:
        """What the op is bound by; None where no peak is known."""
        if self.flops_share is None and self.bandwidth_share is None:
            return None
        return COMPUTE if (self.flops_share or 0.0) > (self.bandwidth_share or 0.0) else MEMORY

    @property
    def roof_share(self) -> float | None:
        """The share of its roof: that of the peak which it is nearer to."""
        shares = [share for share in (self.flops_share, self.bandwidth_share) if share is not None]
        return max(shares, default=None)


def rate_of(ops: Sequence[OpTime], spec: DeviceSpec | None) -> Rate:
    """
    The rate at which ops of devices of one kind ran, by their self time.

    Ops around others count with their time alone, since what they cost is that of the others; those that start or await something
    asynchronous do not count, since it takes another time than theirs. XProf rates both.
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
    """Whether an op starts or awaits work that goes on beside others."""
    return op.kind.endswith(("-start", "-done"))


def roofline_table(ops: Sequence[OpTime], spec: DeviceSpec | None, n_steps: int) -> Table:
    """The ops of a device with known cost, by self time: rates, what bounds them, and the share of that roof."""
    columns = [
        Column("op", "op"),
        Column("category", "category"),
        Column("self_s", "self", SECONDS),
        Column("flops", "FLOP", FLOP),
        Column("flop_rate", "FLOP rate", FLOP_RATE),
        Column("bandwidth", "bandwidth", BANDWIDTH),
        Column("flop_per_byte", "FLOP per byte"),
        Column("bound_by", "bound by"),
        Column("share_of_the_roof", "share of the roof", SHARE),
    ]
    known = [
        op
        for op in ops
        if (op.flops or op.bytes) and not is_async(op) and op.kind not in AROUND_OTHERS
    ]
    rows = []
    for op in sorted(known, key=lambda op: -op.self_s):
        rate = rate_of([op], spec)
        flops = None if op.flops is None else op.flops / n_steps
        rows.append(
            (
                op.name,
                op.kind,
                op.self_s / n_steps,
                flops,
                rate.flops,
                rate.bandwidth,
                rate.intensity,
                rate.bound,
                rate.roof_share,
            )
        )
    return Table.of("roofline", columns, rows)


def flops_utilization(
    flops: float | None, period_s: float | None, specs: Sequence[DeviceSpec]
) -> Value:
    """
    The share of the devices' peak FLOP rate that steps reach: FLOPs of a step on all these devices ÷ (period x sum of their peaks).

    Where XLA runs one program on every device, the FLOPs of a step are those of the program x devices.
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
        why = f"{flops / period_s:.3g} FLOP/s would be {share:.2f} times the peak of {peak:.3g} FLOP/s: the count or the clock is wrong"
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
