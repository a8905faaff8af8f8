"""
Peak rates of an accelerator, from the stats of its plane.

Stats of a GPU's plane are clock_rate in kHz, core_count, memory_bandwidth in bytes per second,
memory_size in bytes, compute_cap_major and _minor, and device_vendor. Those of a TPU core's plane
are device_type_string, peak_teraflops_per_second (10^12) and peak_hbm_bw_gigabytes_per_second
(10^9). Sources: xla/tsl/profiler/utils/xplane_schema.cc; openxla/xprof, xplane_to_op_stats.cc.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_tfperf.trace.devices import GPU
from pytest_tfperf.trace.stats import plane_stats
from pytest_tfperf.trace.xspace import Plane

# Dense FLOP per cycle and SM: matrix units with 16-bit operands, matrix units with float32 operands
# (TF32), and CUDA cores in float32. Sources: NVIDIA's architecture whitepapers, V100 125 TFLOP/s =
# 80 SM x 1.53 GHz x 1024, A100 312 = 108 x 1.41 x 2048, H100 SXM 989 = 132 x 1.83 x 4096, L4 121 =
# 58 x 2.04 x 1024; B200 and earlier ones as in openxla/xprof, hardware_type_utils.cc.
_NVIDIA: dict[tuple[int, int], tuple[int | None, int | None, int]] = {
    (6, 0): (256, None, 128),
    (6, 1): (None, None, 256),
    (7, 0): (1024, None, 128),
    (7, 5): (1024, None, 128),
    (8, 0): (2048, 1024, 128),
    (8, 6): (1024, 512, 256),
    (8, 9): (1024, 512, 256),
    (9, 0): (4096, 2048, 256),
    (10, 0): (8192, 4096, 256),
}
# The same for AMD's compute units: MI300X 1307 TFLOP/s = 304 CU x 2.1 GHz x 2048, MI355X 2517 =
# 256 x 2.4 x 4096 (AMD CDNA 4 whitepaper, table 1). CDNA 1 and 2 share one number and differ in
# rate, so their rates are unknown.
_AMD: dict[tuple[int, int], tuple[int | None, int | None, int]] = {
    (9, 4): (2048, 1024, 256),
    (9, 5): (4096, None, 256),
}
# ROCm counts two transfers per clock, but MI300's HBM3 makes four: it reports 2.66 TB/s, and AMD's
# data sheet 5.3 TB/s.
_TRANSFERS = {("AMD", (9, 4)): 2.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """Peak rates of one GPU or one TPU core."""

    name: str
    """Name of the device."""
    flops: dict[str, float]
    """
    FLOP/s by operands: "16 bit" and "32 bit" on matrix units, "float32" on others.

    Unknown rates have no entry.
    """
    bandwidth: float | None = None
    """Memory bandwidth in bytes/s."""
    memory_bytes: int | None = None
    """Bytes of its memory, or None."""

    @property
    def peak_flops(self) -> float | None:
        """FLOP/s of the fastest unit for floating-point numbers of 16 bits or more."""
        return max(self.flops.values(), default=None)


def device_spec(plane: Plane) -> DeviceSpec:
    """Return the peak rates of a plane's GPU or TPU core."""
    stats = plane_stats(plane)
    return _gpu_spec(stats) if GPU.match(plane.name) else _tpu_spec(stats)


def _tpu_spec(stats: dict[str, float | str | bytes]) -> DeviceSpec:
    peak, bandwidth = (
        _number(stats, "peak_teraflops_per_second"),
        _number(stats, "peak_hbm_bw_gigabytes_per_second"),
    )
    return DeviceSpec(
        name=str(stats.get("device_type_string", "TPU")),
        flops={"16 bit": peak * 1e12} if peak else {},
        bandwidth=bandwidth * 1e9 if bandwidth else None,
    )


def _gpu_spec(stats: dict[str, float | str | bytes]) -> DeviceSpec:
    major, minor = _number(stats, "compute_cap_major"), _number(stats, "compute_cap_minor")
    capability = (int(major or 0), int(minor or 0))
    vendor = "AMD" if stats.get("device_vendor") == "AMD" else "NVIDIA"
    per_cycle = (_AMD if vendor == "AMD" else _NVIDIA).get(capability, (None, None, None))
    cycles = (_number(stats, "core_count") or 0) * (_number(stats, "clock_rate") or 0) * 1e3
    rates = zip(("16 bit", "32 bit", "float32"), per_cycle, strict=True)
    bandwidth, memory = _number(stats, "memory_bandwidth"), _number(stats, "memory_size")
    return DeviceSpec(
        name=f"{vendor} GPU, compute capability {capability[0]}.{capability[1]}"
        if major
        else f"{vendor} GPU",
        flops={name: rate * cycles for name, rate in rates if rate and cycles},
        bandwidth=bandwidth * _TRANSFERS.get((vendor, capability), 1.0) if bandwidth else None,
        memory_bytes=int(memory) if memory else None,
    )


def _number(stats: dict[str, float | str | bytes], name: str) -> float | None:
    """Read a stat that is a positive number; some profilers write numbers as text."""
    value = stats.get(name)
    try:
        number = float(value) if value is not None else 0.0
    except ValueError:
        return None
    return number if 0 < number < float("inf") else None
