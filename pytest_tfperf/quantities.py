"""
Quantities with units: how they are read, and how they are written for people.

pytest loads this module in every run of every project of the environment, so it imports only the
standard library.
"""

from __future__ import annotations

import math
import numbers
import re
from typing import Final, Literal

SECONDS: Final = "s"
RATE: Final = "1/s"
SHARE: Final = "0..1"
RATIO: Final = "ratio"
COUNT: Final = "count"
BYTES: Final = "bytes"
FLOP: Final = "FLOP"
Unit = Literal["s", "1/s", "0..1", "ratio", "count", "bytes", "FLOP"]
BANDWIDTH, FLOP_RATE = "bytes/s", "FLOP/s"  # only in tables


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
    Read a quantity of one of `UNITS` into seconds, bytes, or shares from 0 to 1.

    It is a number in these, or a string as "5%" or "1.5 GiB"; if `bare`, the string of a time or of
    bytes may lack its unit. Raises ValueError if it is not a finite quantity of that unit.
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


def format_quantity(number: float, unit: str = "") -> str:
    """
    Write a number in base units for people: "12.4 ms", "16.7 %", "1.5 GiB", "3,835".

    A number that is not zero is not written as zero, nor a share as 100 % that is not all. A unit
    that is not known here stands behind the number as it is.
    """
    if unit in (SHARE, RATIO):
        return f"{_percent(number)} %"
    if unit == COUNT and not 0 < abs(number) < 0.01:
        return f"{number:,.0f}" if number == int(number) else f"{number:,.2f}"
    if unit == RATE:
        return f"{digits(number)}/s"
    if unit not in SCALES:
        return digits(number) if unit in ("", COUNT) else f"{digits(number)} {unit}"
    scale, suffix = scale_of(number, unit)
    return f"{digits(number / scale)} {suffix}"


def format_factor(ratio: float) -> str:
    """Write a ratio as a factor: "× 1.07", "× 3,835", and "÷ 3,835" for a very small one."""
    return f"÷ {digits(1 / ratio)}" if 0 < ratio < 1e-3 else f"× {digits(ratio)}"


def format_ratio(ratio: float) -> str:
    """Write a ratio to a thousandth."""
    return f"{ratio:.3f}" if 0.1 <= ratio < 10 else digits(ratio)


def _percent(share: float) -> str:
    size = abs(share)
    if size != 1 and 0.9995 <= size <= 1.005:
        outward = math.floor if size < 1 else math.ceil
        return f"{math.copysign(outward(size * 10_000) / 100, share):g}"
    return digits(share * 100) if size < 1 else f"{share * 100:,.0f}"


def scale_of(number: float, unit: str) -> tuple[float, str]:
    """Return the factor and the suffix that a number is written with."""
    return next((row for row in SCALES[unit] if abs(number) >= row[0]), SCALES[unit][-1])


_LEAST = 1e-4


def digits(number: float) -> str:
    """Write a number with three digits and without an exponent."""
    if 0 < abs(number) < _LEAST:
        return f"<{_LEAST}" if number > 0 else f">-{_LEAST}"
    return f"{number:.3g}" if abs(number) < 999.5 else f"{number:,.0f}"


def format_change(before: float, after: float, unit: str) -> str:
    """Write two numbers, and their unit once if they share it: "21 to 46", "0.165 to 631 MFLOP"."""
    first, last = format_alike(before, after, unit)
    number, _, suffix = first.rpartition(" ")
    shares_unit = unit in _ALIKE and last.endswith(f" {suffix}")
    return f"{number if shares_unit else first} to {last}"


def format_alike(before: float, after: float, unit: str) -> tuple[str, str]:
    """
    Write two numbers with one prefix: "0.165 MFLOP" and "631 MFLOP".

    Times keep their own units, as people say them: "679 µs" and "11.9 ms".
    """
    smaller, larger = sorted((abs(before), abs(after)))
    if unit not in _ALIKE or larger > _ONE_PREFIX * smaller:
        return format_quantity(before, unit), format_quantity(after, unit)
    scale, suffix = scale_of(larger, unit)
    return f"{digits(before / scale)} {suffix}", f"{digits(after / scale)} {suffix}"


def told_apart(first: float, second: float, unit: str) -> str:
    """Write two numbers that look alike exactly, as " (exactly 0.05001 and 0.05)"; else empty."""
    alike = first != second and format_quantity(first, unit) == format_quantity(second, unit)
    return f" (exactly {first!r} and {second!r})" if alike else ""


SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    BANDWIDTH: ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1.0, "B/s")),
    FLOP_RATE: ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1.0, "FLOP/s")),
    SECONDS: ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    BYTES: ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")),
    FLOP: ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1.0, "FLOP")),
}
_ALIKE = SCALES.keys() - {SECONDS}
_ONE_PREFIX = 1e4
"""Two numbers that differ by a larger factor keep their own prefixes."""


def _forms(unit: str) -> str:
    suffixes = ", ".join(_FACTORS[unit])
    return f"; give a number, or one with a suffix of {suffixes}" if suffixes else "; give a number"
