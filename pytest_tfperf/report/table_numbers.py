"""Numbers in tables for people: no exponents, no small share that looks like zero."""

from __future__ import annotations

from pytest_tfperf.quantities import (
    COUNT,
    RATE,
    RATIO,
    SCALES,
    SHARE,
    format_alike,
    format_quantity,
)

_LEAST = {SHARE: (1e-4, "0.01 %"), RATIO: (1e-4, "0.01 %"), COUNT: (0.005, "0.01")}
"""Numbers below which a number that is not zero would look like zero, and what is shown."""
_MANY_TIMES = 10
_LEAST_PLAIN = 1e-4


def shown(number: float, unit: str = "") -> str:
    """Write a number in base units: `12.4 ms`, `<0.01 %`, `3,835`; without a unit three digits."""
    if unit in ("", RATE):
        return _plain(number) + ("/s" if unit else "")
    least, text = _LEAST.get(unit, (0.0, ""))
    if 0 < abs(number) < least:
        return f"<{text}" if number > 0 else f">-{text}"
    if unit in (SHARE, RATIO) and abs(number) >= _MANY_TIMES:
        return f"{number * 100:,.0f} %"
    return format_quantity(number, unit)


def shown_alike(first: float, second: float, unit: str) -> tuple[str, str]:
    """
    Write two numbers for two columns, with one prefix where `format_alike` does so.

    Args:
        first: The first number in base units.
        second: The second number in base units.
        unit: Their unit.
    """
    if unit in SCALES:
        return format_alike(first, second, unit)
    return shown(first, unit), shown(second, unit)


def shown_factor(ratio: float) -> str:
    """Write a ratio as a factor: `× 1.07`, `× 3,835`, and `÷ 3,835` for a very small one."""
    if 0 < ratio < 1e-3:
        return f"÷ {_plain(1 / ratio)}"
    return f"× {_plain(ratio)}"


def _plain(number: float) -> str:
    """Write a number with three digits and without an exponent."""
    if 0 < abs(number) < _LEAST_PLAIN:
        return f"<{_LEAST_PLAIN:.4f}" if number > 0 else f">-{_LEAST_PLAIN:.4f}"
    return f"{number:.3g}" if abs(number) < 999.5 else f"{number:,.0f}"
