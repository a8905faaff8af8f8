"""
The accelerator planes of a trace, and the peak rates that their stats tell.

Stats of a GPU's plane are clock_rate in kHz, core_count, memory_bandwidth in bytes per second,
memory_size in bytes, compute_cap_major and _minor, device_vendor and, from JAX 0.11 on,
gpu_device_name. Those of a TPU core's plane are device_type_string, peak_teraflops_per_second
(10^12) and peak_hbm_bw_gigabytes_per_second (10^9). Sources:
xla/tsl/profiler/utils/xplane_schema.cc; openxla/xprof, xplane_to_op_stats.cc.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from pytest_tfperf.errors import TraceError
from pytest_tfperf.trace.events import Events, plane_stats
from pytest_tfperf.trace.host_events import without_waits
from pytest_tfperf.trace.xspace import Plane, Trace

TENSOR_CORES, TF32 = (7, 0), (8, 0)
"""
The first compute capabilities with tensor cores, and with tensor cores that multiply float32 as
TF32 (NVIDIA's whitepapers on Volta and Ampere). GPUs of the series GeForce 16 have none although
theirs is 7.5; traces do not tell them from others.
"""
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
# The clocks of these data sheets, in Hz. NVIDIA's drivers report a higher one for Hopper and
# Blackwell, 1980 MHz on an H200: 132 SM x 1.83 GHz x 4096 = 989 TFLOP/s is the peak of the sheet.
# H100 SXM, H800 SXM and H200 SXM have 989, H100 PCIe 756 with 114 SM, both NVL 835, B200 2250 with
# 148 SM. H20 has 148 with 78 SM: other rates per cycle, which are unknown.
_SHEET_CLOCKS = (
    (re.compile(r"H20\b"), 0.0),
    (re.compile(r"H[18]00 PCIe"), 1.62e9),
    (re.compile(r"H[12]00 NVL"), 1.545e9),
    (re.compile(r"GH200|H[128]00"), 1.83e9),
    (re.compile(r"G?B200"), 1.856e9),
)
# ROCm counts two transfers per clock, but MI300's HBM3 makes four: it reports 2.66 TB/s, and AMD's
# data sheet 5.3 TB/s.
_TRANSFERS = {("AMD", (9, 4)): 2.0}
MOST_DEVICE_STEPS = 2_000_000
"""
Steps times devices of a trace: some 300 MB.

Real traces have hundreds of steps, on up to 16 devices.
"""
_DERIVED = range(0xDEADBEEF - (1 << 32), 0xDEADBEEF - (1 << 32) + 512)
"""Ids, as int32, of the lines that XProf derives from others.

Source: kThreadIdDerivedMin (xla/tsl/profiler/utils/trace_utils.h).
"""
_DERIVED_NAMES = frozenset(
    {
        "Steps",
        "XLA Modules",
        "XLA Ops",
        "Framework Ops",
        "TensorFlow Ops",
        "Framework Name Scope",
        "TensorFlow Name Scope",
        "Source code",
    }
    | {"Launch Stats", "Async XLA Ops", "XLA TraceMe", "Host Offload Ops", "_counters_"}
)
"""Names of lines that XProf derives from others."""
GPU = re.compile(r"/device:GPU:\d+\Z")
TPU = re.compile(r"/device:TPU:\d+\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """Peak rates of one GPU or one TPU core."""

    name: str
    flops: dict[str, float]
    """
    FLOP/s by operands: "16 bit" and "32 bit" on matrix units, "float32" on others.

    Unknown rates have no entry.
    """
    bandwidth: float | None = None
    """Memory bandwidth in bytes/s."""
    memory_bytes: int | None = None

    @property
    def peak_flops(self) -> float | None:
        """FLOP/s of the fastest unit for floating-point numbers of 16 bits or more."""
        return max(self.flops.values(), default=None)


def device_spec(plane: Plane) -> DeviceSpec:
    """Return the peak rates of a plane's GPU or TPU core."""
    stats = plane_stats(plane)
    return _gpu_spec(stats) if GPU.match(plane.name) else _tpu_spec(stats)


def compute_capability(plane: Plane) -> tuple[int, int] | None:
    """Return the compute capability of a plane's NVIDIA GPU, (7, 0) for a V100; else None."""
    stats = plane_stats(plane)
    major = _number(stats, "compute_cap_major")
    if major is None or stats.get("device_vendor") == "AMD":
        return None
    return int(major), int(_number(stats, "compute_cap_minor") or 0)


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
    clock = min((_number(stats, "clock_rate") or 0) * 1e3, _sheet_clock(stats))
    cycles = (_number(stats, "core_count") or 0) * clock
    rates = zip(("16 bit", "32 bit", "float32"), per_cycle, strict=True)
    bandwidth, memory = _number(stats, "memory_bandwidth"), _number(stats, "memory_size")
    return DeviceSpec(
        name=_gpu_name(stats, vendor, capability),
        flops={name: rate * cycles for name, rate in rates if rate and cycles},
        bandwidth=bandwidth * _TRANSFERS.get((vendor, capability), 1.0) if bandwidth else None,
        memory_bytes=int(memory) if memory else None,
    )


def _gpu_name(
    stats: dict[str, float | str | bytes], vendor: str, capability: tuple[int, int]
) -> str:
    if name := stats.get("gpu_device_name"):
        return str(name)
    known = f", compute capability {capability[0]}.{capability[1]}" if any(capability) else ""
    return f"{vendor} GPU{known}"


def _sheet_clock(stats: dict[str, float | str | bytes]) -> float:
    """Return the clock of a GPU's data sheet in Hz: infinite for the driver's, 0 if unknown."""
    name = str(stats.get("gpu_device_name", ""))
    return next((clock for model, clock in _SHEET_CLOCKS if model.search(name)), math.inf)


def _number(stats: dict[str, float | str | bytes], name: str) -> float | None:
    """Read a stat that is a positive number; some profilers write numbers as text."""
    value = stats.get(name)
    try:
        number = float(value) if value is not None else 0.0
    except ValueError:
        return None
    return number if 0 < number < float("inf") else None


def accelerators(trace: Trace) -> list[Plane]:
    """Return the planes with events of GPUs and TPU cores, without a TPU's sparse cores."""
    return gpus(trace) + tpus(trace)


def refuse_many_steps(trace: Trace, n_steps: int) -> None:
    """Raise a TraceError if the steps on all accelerators are more than `MOST_DEVICE_STEPS`."""
    n_devices = len(accelerators(trace))
    if n_steps * n_devices > MOST_DEVICE_STEPS:
        raise TraceError(
            f"trace {trace.path}: {n_steps:,} steps on {n_devices:,} devices, and at most"
            f" {MOST_DEVICE_STEPS:,} steps of all devices together are analysed; trace fewer steps"
        )


def gpus(trace: Trace) -> list[Plane]:
    """Return the planes with events of GPUs."""
    return [plane for plane in trace.planes if plane.start_ps.size and GPU.match(plane.name)]


def tpus(trace: Trace) -> list[Plane]:
    """Return the planes with events of TPU cores."""
    return [plane for plane in trace.planes if plane.start_ps.size and TPU.match(plane.name)]


def device_name(plane: Plane) -> str:
    """Return the name of a device from that of its plane, as in `GPU:0`."""
    return plane.name.removeprefix("/device:")


def stream_events(plane: Plane) -> Events:
    """Return the events of a GPU's streams: kernels and copies."""
    streams = [
        i
        for i, line in enumerate(plane.lines)
        if line.id not in _DERIVED and line.name not in _DERIVED_NAMES
    ]
    events = Events.of(plane)
    return without_waits(events.where(np.isin(events.line, streams)))


def tpu_ops(plane: Plane) -> Events:
    """Return the events of a TPU core's op line."""
    ops = (
        i
        for i, line in enumerate(plane.lines)
        if line.name in ("XLA Ops", "Framework Ops", "TensorFlow Ops")
    )
    return Events.of(plane).on_line(next(ops, -1))
