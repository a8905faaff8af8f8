"""
Registry of metrics, and quantities with units.

Marker names, report rows, help and docs are generated from `METRICS`. pytest loads this module in
every run of every project of the environment, so it imports only the standard library.
"""

from __future__ import annotations

import difflib
import math
import numbers
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

__tracebackhide__ = True

PROGRAM, PLATFORM, MACHINE = "program", "platform", "machine"
LOWER, HIGHER = "lower", "higher"
SECONDS, RATE, SHARE, RATIO, COUNT, BYTES, FLOP = (
    "s",
    "1/s",
    "0..1",
    "ratio",
    "count",
    "bytes",
    "FLOP",
)
BANDWIDTH, FLOP_RATE = "bytes/s", "FLOP/s"  # only in tables


class Metric(NamedTuple):
    """One row of the registry."""

    name: str
    unit: str
    """One of `UNITS`."""
    better: str | None
    """`lower`, `higher`, or None if neither is."""
    scope: str
    """
    Where a value is the same.

    `program` is every machine, `platform` a device kind and TensorFlow minor version, `machine`
    one class of machines.
    """
    meaning: str
    """Short description, for people."""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Metric:
        """
        Invert `_asdict`.

        Raises:
            ValueError: If the unit is unknown.
        """
        if data["unit"] not in UNITS:
            raise ValueError(f"the unit {data['unit']!r}")
        return cls(**data)


_ROWS = (
    Metric(
        "step_time",
        SECONDS,
        LOWER,
        MACHINE,
        "time of a step: median over blocks of block time ÷ steps",
    ),
    Metric("step_time_p90", SECONDS, LOWER, MACHINE, "90th percentile of the single steps"),
    Metric("step_time_p99", SECONDS, LOWER, MACHINE, "99th percentile of 300 single steps or more"),
    Metric(
        "first_step_time",
        SECONDS,
        LOWER,
        MACHINE,
        "time of the first step, which traces and compiles",
    ),
    Metric("throughput", RATE, HIGHER, MACHINE, "examples per second"),
    Metric(
        "epoch_gap",
        SECONDS,
        LOWER,
        MACHINE,
        "time from the last step of an epoch to the first of the next",
    ),
    Metric(
        "input_bound",
        SHARE,
        LOWER,
        MACHINE,
        "share of the step period that waits for input with nothing else running",
    ),
    Metric("input_wait", SECONDS, LOWER, MACHINE, "time a step waits for input"),
    Metric(
        "input_capacity",
        RATE,
        HIGHER,
        MACHINE,
        "elements per second that the pipeline delivers with nobody else running",
    ),
    Metric(
        "input_bound_at_target",
        SHARE,
        LOWER,
        MACHINE,
        "input_bound predicted for steps of target_step_time",
    ),
    Metric(
        "input_python_stages",
        COUNT,
        LOWER,
        PROGRAM,
        "stages of the input pipeline that run Python",
    ),
    Metric(
        "host_overhead",
        SHARE,
        LOWER,
        MACHINE,
        "share of the step period with neither device, TensorFlow nor input active",
    ),
    Metric(
        "device_busy", SHARE, HIGHER, MACHINE, "share of the step period in which a device executes"
    ),
    Metric(
        "collective_time",
        SHARE,
        LOWER,
        MACHINE,
        "share of the step period in collectives that nothing hides",
    ),
    Metric("step_skew", RATIO, LOWER, MACHINE, "slowest ÷ median over devices or hosts − 1"),
    Metric("xla_clusters", COUNT, None, PLATFORM, "distinct XLA executables run in a step"),
    Metric("xla_launches", COUNT, LOWER, PLATFORM, "executions of XLA executables in a step"),
    Metric(
        "xla_compiles",
        COUNT,
        LOWER,
        PROGRAM,
        "XLA executables compiled in any step after the first",
    ),
    Metric("xla_compile_time", SECONDS, LOWER, MACHINE, "XLA compilation in the first step"),
    Metric(
        "xla_coverage",
        SHARE,
        HIGHER,
        PLATFORM,
        "share of the compute nodes that are inside XLA clusters",
    ),
    Metric("fusions", COUNT, None, PLATFORM, "fusion instructions in the executables of a step"),
    Metric("retraces", COUNT, LOWER, PROGRAM, "tf.function traces in any step after the first"),
    Metric("eager_ops", COUNT, LOWER, PROGRAM, "ops run eagerly in a step"),
    Metric(
        "python_calls",
        COUNT,
        LOWER,
        PLATFORM,
        "Python functions that a step calls in its own thread",
    ),
    Metric("graph_ops", COUNT, LOWER, PLATFORM, "ops of the graph after Grappler"),
    Metric(
        "graph_reduction", SHARE, HIGHER, PLATFORM, "share of the graph's ops that Grappler removed"
    ),
    Metric("padding_overhead", RATIO, LOWER, PROGRAM, "padded ÷ logical bytes − 1 on a TPU"),
    Metric(
        "mxu_padding_overhead",
        RATIO,
        LOWER,
        PROGRAM,
        "padded ÷ logical matrix-unit FLOPs − 1 on a TPU",
    ),
    Metric(
        "batch_padding", SHARE, LOWER, PROGRAM, "share of the batches' elements that are padding"
    ),
    Metric(
        "op_guide_findings",
        COUNT,
        LOWER,
        PROGRAM,
        "rules of the Cloud TPU op guide that the step breaks",
    ),
    Metric("peak_memory", BYTES, LOWER, PLATFORM, "memory that a step needs at its peak"),
    Metric(
        "memory_growth",
        BYTES,
        LOWER,
        MACHINE,
        "bytes that the process holds more after each step, over the timed window",
    ),
    Metric(
        "half_precision",
        SHARE,
        HIGHER,
        PROGRAM,
        "share of matmul and convolution FLOPs with 16-bit or narrower operands",
    ),
    Metric("flops", FLOP, None, PROGRAM, "floating-point operations of a step"),
    Metric(
        "flops_utilization",
        SHARE,
        HIGHER,
        MACHINE,
        "share of the device's peak FLOP rate that is reached",
    ),
    Metric(
        "host_device_copies", COUNT, LOWER, PLATFORM, "copies between host and device in a step"
    ),
    Metric(
        "host_device_bytes",
        BYTES,
        LOWER,
        PLATFORM,
        "bytes copied between host and device in a step",
    ),
    Metric("kernel_launches", COUNT, LOWER, PLATFORM, "GPU kernels launched in a step"),
    Metric(
        "tensor_core_time",
        SHARE,
        HIGHER,
        MACHINE,
        "share of the eligible kernel time on tensor cores",
    ),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ROWS}

_FACTORS: dict[str, dict[str, float]] = {
    SECONDS: {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0},
    RATE: {"/s": 1.0},
    SHARE: {"%": 0.01},
    RATIO: {"%": 0.01},
    COUNT: {},
    BYTES: {
        "B": 1.0,
        "kB": 1e3,
        "KB": 1e3,
        "MB": 1e6,
        "GB": 1e9,
        "TB": 1e12,
        "KiB": 2.0**10,
        "MiB": 2.0**20,
        "GiB": 2.0**30,
        "TiB": 2.0**40,
    },
    FLOP: {"FLOP": 1.0, "MFLOP": 1e6, "GFLOP": 1e9, "TFLOP": 1e12},
}
UNITS = tuple(_FACTORS)
_MEANT = {SECONDS: ("ms", "s"), BYTES: ("MiB", "GiB")}
"""Units that strings must have, since a number alone is read in more than one way."""
_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(\D*?)\s*\Z")


def parse_quantity(value: object, unit: str, bare: bool = False) -> float:
    """
    Read a quantity.

    Args:
        value: A number in base units, or a string such as "5%" or "1.5 GiB".
        unit: One of `UNITS`.
        bare: Whether the string of a time or of bytes may lack its unit.

    Returns:
        The number in base units: seconds, bytes, shares from 0 to 1.

    Raises:
        ValueError: If it is not a finite quantity of that unit.
    """
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number = _as_float(value)
    elif isinstance(value, str):
        match = _QUANTITY.match(value)
        suffix = match[2] if match else ""
        if match is None or (suffix and suffix not in _FACTORS[unit]):
            raise ValueError(f"{value!r} is not a quantity{_forms(unit)}")
        if unit in _MEANT and not suffix and not bare:
            first, second = (f"{match[1]} {meant}" for meant in _MEANT[unit])
            raise ValueError(f"{value!r} has no unit; write {first!r} or {second!r}")
        number = _scaled(float(match[1]), _FACTORS[unit][suffix]) if suffix else float(match[1])
    else:
        raise ValueError(f"{value!r} is not a quantity{_forms(unit)}")
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not a finite number")
    return number


def _as_float(value: numbers.Real) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _scaled(number: float, factor: float) -> float:
    """Multiply; small factors divide, since 35 / 100 is 0.35 and 35 * 0.01 is a little more."""
    return number * factor if factor >= 1 else number / round(1 / factor)


def format_quantity(number: float, unit: str) -> str:
    """Write a number in base units for people: "12.4 ms", "16.7 %", "1.5 GiB"."""
    if unit in (SHARE, RATIO):
        return f"{number * 100:.3g} %" if abs(number) < 1 else f"{number * 100:.0f} %"
    if unit == COUNT:
        return f"{number:,.0f}" if number == int(number) else f"{number:,.2f}"
    if unit == RATE:
        return f"{number:,.3g}/s" if abs(number) < 999.5 else f"{number:,.0f}/s"
    scale, suffix = next((row for row in _SCALES[unit] if abs(number) >= row[0]), _SCALES[unit][-1])
    scaled = number / scale
    return f"{scaled:.3g} {suffix}" if abs(scaled) < 999.5 else f"{scaled:,.0f} {suffix}"


def told_apart(first: float, second: float, unit: str) -> str:
    """
    Write two numbers exactly if `format_quantity` writes them alike.

    Args:
        first: The first number in base units.
        second: The second number in base units.
        unit: Their unit.

    Returns:
        For example " (exactly 0.05001 and 0.05)"; empty if the numbers are equal or look different.
    """
    alike = first != second and format_quantity(first, unit) == format_quantity(second, unit)
    return f" (exactly {first!r} and {second!r})" if alike else ""


_SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    BANDWIDTH: ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1.0, "B/s")),
    FLOP_RATE: ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1.0, "FLOP/s")),
    SECONDS: ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    BYTES: ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")),
    FLOP: ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1.0, "FLOP")),
}


def nearest(name: str, valid: Iterable[str]) -> str:
    """Write the most similar valid name and all valid names, for messages on unknown names."""
    names = sorted(valid)
    close = difflib.get_close_matches(name, names, 1)
    return (f"did you mean {close[0]!r}? " if close else "") + f"valid: {', '.join(names)}"


def _forms(unit: str) -> str:
    suffixes = ", ".join(_FACTORS[unit])
    return f"; give a number, or one with a suffix of {suffixes}" if suffixes else "; give a number"
