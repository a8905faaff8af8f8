"""A step in one line of text: its parts as a bar, and its timed blocks as a sparkline."""

from __future__ import annotations

import codecs
import statistics
from collections.abc import Sequence

from pytest_tfperf.quantities import SECONDS, SHARE, format_quantity
from pytest_tfperf.report.step_verdict import parts_of
from pytest_tfperf.results import Profile

_BAR_WIDTH, _MOST_BLOCKS = 24, 24  # characters
_BAR, _ASCII_BAR = "█▓▒░·", "#=+-."
_LEVELS, _ASCII_LEVELS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
_NAMED = 3  # parts
_FLAT = 0.02  # a range below this share of the median is shown as equal blocks


def shows_unicode(encoding: str | None) -> bool:
    """Return whether a stream of this encoding can write the characters of a bar."""
    try:
        codecs.encode(_BAR + _LEVELS, encoding or "ascii")
    except (LookupError, UnicodeError):
        return False
    return True


def levels_of(encoding: str | None) -> str:
    """Return the characters of a sparkline that a stream of this encoding can write."""
    return _LEVELS if shows_unicode(encoding) else _ASCII_LEVELS


def step_line(profile: Profile, ascii_only: bool) -> str:
    """
    Return the parts of the traced steps and the timed blocks of a profile, empty without either.

    Args:
        profile: The profile.
        ascii_only: True to use ASCII characters only.
    """
    parts = parts_of(profile)
    texts = []
    if parts:
        named = ", ".join(
            f"{part.title} {format_quantity(part.share, SHARE)}" for part in parts[:_NAMED]
        )
        shares = [part.share for part in parts]
        texts.append(f"{share_bar(shares, _ASCII_BAR if ascii_only else _BAR)} {named}")
    if profile.blocks_s:
        low, high = (format_quantity(end(profile.blocks_s), SECONDS) for end in (min, max))
        times = low if low == high else f"{low} to {high}"
        levels = _ASCII_LEVELS if ascii_only else _LEVELS
        texts.append(f"{sparkline(profile.blocks_s, levels)} blocks, {times}")
    return "; ".join(texts)


def share_bar(shares: Sequence[float], glyphs: str) -> str:
    """
    Draw shares of a whole side by side, each with its glyph; the last glyph serves all others.

    Args:
        shares: The shares, the largest first.
        glyphs: Characters, one for each share.
    """
    whole = sum(shares)
    edges = [round(_BAR_WIDTH * sum(shares[: n + 1]) / whole) for n in range(len(shares))]
    starts = [0, *edges]
    return "".join(
        glyphs[min(n, len(glyphs) - 1)] * (end - start)
        for n, (start, end) in enumerate(zip(starts, edges, strict=False))
    )


def sparkline(values: Sequence[float], levels: str) -> str:
    """
    Draw values as a line of characters, the lowest value at the lowest level.

    Args:
        values: The values; of many, neighbours are drawn as their median.
        levels: Characters from low to high.
    """
    n = min(len(values), _MOST_BLOCKS)
    bounds = [round(len(values) * place / n) for place in range(n + 1)]
    drawn = [statistics.median(values[bounds[k] : bounds[k + 1]]) for k in range(n)]
    low, high = min(drawn), max(drawn)
    if high - low <= _FLAT * statistics.median(drawn):
        return levels[0] * n
    return "".join(
        levels[min(int((value - low) / (high - low) * len(levels)), len(levels) - 1)]
        for value in drawn
    )
