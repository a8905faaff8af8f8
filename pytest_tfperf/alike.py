"""Sentences that differ in their numbers alone, said once: with ranges, and of how many tests."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from pytest_tfperf.quantities import RATE, SCALES, SHARE
from pytest_tfperf.text import plural

_SUFFIXES = {suffix: (unit, factor) for unit, rows in SCALES.items() for factor, suffix in rows}
_SUFFIXES |= {"%": (SHARE, 1.0), "/s": (RATE, 1.0)}
_UNITS = "|".join(map(re.escape, sorted(_SUFFIXES, key=len, reverse=True)))
# no digits of names, shapes, lines, versions and dates: float32, f32[8,5], train.py:12, 2.21.0
_QUANTITY = re.compile(
    r"(?<![\w.:/\[-])(?P<number>-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)"
    rf"(?: ?(?P<unit>{_UNITS}))?(?![\w/\]-]|[.,]\d)"
)
_NAMED = 3


def alike(said: Iterable[tuple[str, str]]) -> list[tuple[list[str], str]]:
    """Join sentences, of names, that differ in numbers alone, into ones with `28 to 64 %`."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for name, sentence in said:
        groups.setdefault(_QUANTITY.sub(_blank, sentence), []).append((name, sentence))
    return [
        (list(dict.fromkeys(name for name, _ in group)), _ranged([text for _, text in group]))
        for group in groups.values()
    ]


def named(names: Sequence[str], tests: Collection[str] = (), whole: bool = False) -> str:
    """Return a few names, or their number: `test_a, test_b` and `9 tests`; all if `whole`."""
    if whole or len(names) <= _NAMED:
        return ", ".join(names)
    return plural(len(names), "test" if set(names) <= set(tests) else "profile")


def _blank(quantity: re.Match[str]) -> str:
    return f"\0{_SUFFIXES[quantity['unit']][0] if quantity['unit'] else ''}\0"


def _ranged(sentences: Sequence[str]) -> str:
    """Return the first sentence with a range for each number that differs."""
    quantities = zip(*map(_QUANTITY.finditer, sentences), strict=True)
    ranges = [_range(each) for each in quantities]
    return _QUANTITY.sub(lambda _: ranges.pop(0), sentences[0])


def _range(quantities: Sequence[re.Match[str]]) -> str:
    """Return the smallest and the largest, and a unit that both have once."""
    low, high = min(quantities, key=_value), max(quantities, key=_value)
    if _value(low) == _value(high):
        return low[0]
    return f"{low['number'] if low['unit'] == high['unit'] else low[0]} to {high[0]}"


def _value(quantity: re.Match[str]) -> float:
    factor = _SUFFIXES[quantity["unit"]][1] if quantity["unit"] else 1.0
    return float(quantity["number"].replace(",", "")) * factor
