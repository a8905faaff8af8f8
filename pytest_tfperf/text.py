"""Text for people: cut strings, counted nouns, slow-downs, short lists, columns, headlines."""

from __future__ import annotations

import codecs
import re
import textwrap
from collections.abc import Sequence

from pytest_tfperf.quantities import digits

BOUNDLESS = 1_000_000
"""Columns of a file or a pipe, whose text is searched and so not cut."""
Labelled = tuple[str, str]
"""Label and text, as in `where: 90 % in Map`; an empty label where the text stands alone."""
_IN_TIMES = 2.0
"""Ratio from which a change is written in times instead of percent."""
_IN_WHOLE = 9.95
"""Percentage from which a change is written in whole percent."""
_LEAST, _NO_CHANGE = 0.01, 1e-4
"""Smallest percentage that is written, and the one up to which times count as equal."""


# `::error::` at the start of a line, after any space, and `##[error]` anywhere in it: TryParseV2
# and TryParse of actions/runner, src/Runner.Common/ActionCommand.cs; `##vso[` is Azure's form
_COMMAND = re.compile(r"^\s*:(?=:[^\n]*::)|##(?=\w*\[)", re.MULTILINE)
# control characters but tab and line feed, line separators, changes of text direction, and halves
# of surrogate pairs, which no file can hold
_HARMFUL = dict.fromkeys(
    (
        *range(9),
        *range(11, 32),
        *range(127, 160),
        0x061C,
        0x200E,
        0x200F,
        *range(0x2028, 0x202F),
        *range(0x2066, 0x206A),
        *range(0xD800, 0xE000),
    ),
    "\N{REPLACEMENT CHARACTER}",
)


_IN_ASCII = str.maketrans("█▓▒░·▁▂▃▄▅▆▇", "#+=-._.-=+*%")
"""The characters that bars and sparklines are drawn with, and others for old terminals."""


def shows_pictures(encoding: str | None) -> bool:
    """Return whether a stream of this encoding can write the characters of a picture."""
    try:
        codecs.encode("".join(map(chr, _IN_ASCII)), encoding or "ascii")
    except (LookupError, UnicodeError):
        return False
    return True


def in_ascii(text: str) -> str:
    """Return text whose pictures are drawn with ASCII characters."""
    return text.translate(_IN_ASCII)


def plain(text: str) -> str:
    """Replace characters that control a terminal, the text's direction or no text at all."""
    return text if text.isprintable() else text.translate(_HARMFUL)


def without_commands(text: str) -> str:
    """Split what a CI system would take for a command: `: :error::`, `## [add-mask]`."""
    return _COMMAND.sub(r"\g<0> ", text)


def one_line(text: str) -> str:
    """Return a name that others gave on one line, as a cell of a table holds it."""
    return text.replace("\n", " ")


def for_terminal(text: str) -> str:
    """Return text that others wrote, as it may be written to a terminal or to the log of a job."""
    return without_commands(plain(text))


def elide(text: str, width: int) -> str:
    """
    Replace the middle of a text longer than `width` characters by an ellipsis.

    Two thirds of what is kept are the end, since names of tests, ops and files differ there.
    """
    if len(text) <= width:
        return text
    head = (width - 1) // 3
    tail = width - 1 - head
    return f"{text[:head]}…{text[len(text) - tail :]}"


def plural(n: int, noun: str, nouns: str = "") -> str:
    """Return a number with its noun: `1 test`, `2 tests`; `nouns` if that takes no s."""
    return f"{n} {noun if n == 1 else nouns or f'{noun}s'}"


SLOWER_FASTER = ("slower", "faster")
MORE_LESS = ("more", "less")


def format_slowdown(ratio: float, words: tuple[str, str] = SLOWER_FASTER) -> str:
    """
    Write the ratio of two times as a change: `8.3 % slower`, `17.5 times slower`, `0.4 % faster`.

    Percentages are of the time before. `words` are those for a ratio above and below 1.
    """
    return " ".join(_slowdown(ratio, words))


def format_slowdowns(low: float, high: float, words: tuple[str, str] = SLOWER_FASTER) -> str:
    """Write an interval of ratios: `7 to 9.6 % slower`, `4.8 % faster to 15 % slower`."""
    (first, *unit), (last, *last_unit) = _slowdown(low, words), _slowdown(high, words)
    if unit != last_unit:
        return f"{format_slowdown(low, words)} to {format_slowdown(high, words)}"
    if unit[-1] == words[1]:
        first, last = last, first
    return " ".join((first, "to", last, *unit))


def _slowdown(ratio: float, words: tuple[str, str]) -> tuple[str, str, str]:
    """Return number, unit and direction of a change."""
    times, percent = max(ratio, 1 / ratio), 100 * abs(ratio - 1)
    direction = words[ratio < 1 and percent > _NO_CHANGE]
    if times >= _IN_TIMES:
        return digits(times), "times", direction
    if percent < _LEAST:
        return f"<{_LEAST}" if percent > _NO_CHANGE else "0", "%", direction
    return f"{percent:.2g}" if percent < _IN_WHOLE else f"{percent:.0f}", "%", direction


def and_more(items: Sequence[str], limit: int, separator: str = ", ", n_more: int = 0) -> str:
    """Join the first `limit` items, and count the others and `n_more`: `a, b, and 3 more`."""
    named = list(items[:limit])
    left = len(items) - len(named) + n_more
    if left:
        named.append(f"and {left} more")
    return separator.join(named)


def aligned(rows: Sequence[Sequence[str]], sides: Sequence[str] = ()) -> list[str]:
    """Lines of cells in columns, two spaces apart, each to its side, `left` or `right`."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = sides or ["left"] * len(widths)
    return ["  ".join(map(_padded, row, widths, sides)).rstrip() for row in rows]


def _padded(cell: str, width: int, side: str) -> str:
    return cell.rjust(width) if side == "right" else cell.ljust(width)


def wrapped(text: str, width: int, deeper: int = 2) -> str:
    """Wrap the lines of a text, whose continuations are indented by `deeper` columns more."""
    return "\n".join(part for line in text.splitlines() for part in _parts(line, width, deeper))


def _parts(line: str, width: int, deeper: int) -> list[str]:
    if len(line) <= width or not line.strip():
        return [line]
    n = min(len(line) - len(line.lstrip()) + deeper, width // 2)
    # a label stays on the line of what it introduces, and a number beside its percent sign
    kept = f"{'x' * n}{line[n:]}".replace(" %", "\u00a0%")
    first, *rest = textwrap.wrap(
        kept, width, subsequent_indent=" " * n, break_long_words=False, break_on_hyphens=False
    )
    return [part.replace("\u00a0%", " %") for part in (line[:n] + first[n:], *rest)]


def headline(text: str) -> tuple[str, tuple[Labelled, ...]]:
    """
    Split a text of several lines for a check: the first, and the others as details without label.
    """
    sentence, *lines = text.splitlines() or [""]
    return sentence, tuple(("", line.removeprefix("  ")) for line in lines)
