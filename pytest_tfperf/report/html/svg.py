"""
Elements of the pages' pictures: SVG, axes with round ticks, figures with their keys.

A chart is `WIDTH` units wide and grows with its column. Boxes are placed in percent, so that their
letters keep their size. Each picture has a label that describes it to screen readers.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from markupsafe import Markup, escape

from pytest_tfperf.quantities import SCALES, SECONDS, format_quantity, scale_of
from pytest_tfperf.text import elide

WIDTH, LEFT, RIGHT, TOP = 360, 48, 352, 10
PLOT = RIGHT - LEFT
BOX_HEIGHT = 16
"""Pixels of a box, as `page.html` draws its hatching."""
NAME_WIDTH, WHOLE_WIDTH = 100, 300
"""Characters of the name in a box, and where the pointer rests."""
NAMED = 3
"""Percent of the picture's width, from which a box has a name without zoom."""
Key = tuple[Markup, str]
"""Sample of a hatching or a line, and what it stands for."""
_SHAPES = frozenset({"circle", "path", "rect"})
_PLAIN = re.compile(r"[\w.,#%()-]+", re.ASCII)
"""Values of attributes that need no quotes in HTML."""
ENDS = r"^(?=.{21})(?:(.*[/:. ])([^/:. ')]{2,24})|(.{8,})(.{12}))$"
"""Pattern of the two ends of a long name: its last part, or some letters where it has only one."""
TAGS = "bibu"
"""Elements of these ends; in a narrow box only a last part is left."""


def element(tag: str, *content: object, **attributes: object) -> Markup:
    """Return an element: text is escaped, `class_` is `class`, `_` a hyphen, None left out."""
    given = "".join(
        f" {name.rstrip('_').replace('_', '-')}={_quoted(value)}"
        for name, value in attributes.items()
        if value is not None
    )
    escaped = "".join(map(escape, content))
    end = " />" if tag in _SHAPES and not escaped else f">{escaped}</{tag}>"
    return Markup(f"<{tag}{given}{end}")  # noqa: S704, as all of it is escaped


def _quoted(value: object) -> str:
    """Return the value of an attribute, in quotes where HTML needs them."""
    written = short(value) if isinstance(value, float) else str(value)
    return written if _PLAIN.fullmatch(written) else f'"{escape(written)}"'


def path(kind: str, *parts: str, **attributes: object) -> Markup:
    """Return a path of these parts, and nothing without any."""
    drawn = "".join(parts)
    return element("path", class_=kind, d=drawn, **attributes) if drawn else Markup()


def text(words: object, x: float, y: float, kind: str | None = None) -> Markup:
    """Return a text that begins, or by its class ends or has its middle, at a place."""
    return element("text", words, class_=kind, x=x, y=y)


def title(words: str) -> Markup:
    """Return the text that is shown where the pointer rests."""
    return element("title", words)


def time_text(seconds: float) -> str:
    """Write a time."""
    return format_quantity(seconds, SECONDS)


def point(x: float, y: float) -> str:
    """Return a place in a path."""
    return f"{short(x)},{short(y)}"


def short(number: float) -> str:
    """Write a place with one digit behind the point, if any is needed."""
    if abs(number) < 0.05:
        return "0"
    written = f"{number:.1f}".removesuffix(".0")
    return written.replace("0.", ".", 1) if abs(number) < 1 else written


@dataclass(frozen=True, slots=True)
class Axis:
    """Places of values, between those of the first and the last tick."""

    ticks: Sequence[float]
    texts: Sequence[str]
    start: float
    end: float

    @classmethod
    def of(cls, low: float, high: float, start: float, end: float, unit: str = SECONDS) -> Axis:
        """Choose ticks around a range of values in a unit."""
        scale = scale_of(max(abs(low), abs(high)), unit)[0] if unit in SCALES else 1.0
        ticks = [tick * scale for tick in ticks_between(low / scale, high / scale)]
        return cls(ticks, tick_texts(ticks, unit), start, end)

    def at(self, value: float) -> float:
        """Return the place of a value."""
        low, high = self.ticks[0], self.ticks[-1]
        return round(self.start + (value - low) / (high - low) * (self.end - self.start), 1)

    def left(self) -> Markup:
        """Return the grid of levels, with their texts to the left."""
        heights = [self.at(tick) for tick in self.ticks]
        grid = path("grid", *(f"M{LEFT},{short(y)}H{RIGHT}" for y in heights))
        places = zip(self.texts, heights, strict=True)
        texts = (element("text", words, y=y) for words, y in places)
        return grid + element("g", *texts, class_="up", transform=f"translate({LEFT - 4})")

    def below(self, y: float) -> Markup:
        """Return the texts of a few ticks from left to right."""
        ends: list[str | None] = [*[None] * (len(self.ticks) - 1), "end"]
        texts = (
            element("text", words, class_=end, x=self.at(tick))
            for tick, words, end in zip(self.ticks, self.texts, ends, strict=True)
        )
        return element("g", *texts, class_="below", transform=f"translate(0,{short(y)})")


def ticks_between(low: float, high: float, n: int = 4) -> list[float]:
    """Choose about `n` + 1 numbers around two, which are 1, 2 or 5 times a power of ten apart."""
    apart = distance((high - low or abs(high) or 1.0) / n)
    first, last = math.floor(low / apart + 1e-9), math.ceil(high / apart - 1e-9)
    return [number * apart for number in range(first, max(last, first + 1) + 1)]


def distance(least: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * 0.999)


def tick_texts(ticks: Sequence[float], unit: str = SECONDS) -> list[str]:
    """Write evenly spaced numbers in one prefix, with the digits that tell them apart."""
    if unit not in SCALES:
        return [format_quantity(tick, unit) if unit else f"{tick:.4g}" for tick in ticks]
    scale, suffix = scale_of(max(map(abs, ticks)), unit)
    digits = digits_of((ticks[1] - ticks[0]) / scale)
    return [f"{tick / scale:.{digits}f} {suffix}" for tick in ticks]


def digits_of(apart: float) -> int:
    """Return the digits behind the point that tell multiples of a number apart."""
    return max(0, math.ceil(-math.log10(apart) - 1e-6))


def range_text(values: Sequence[float], unit: str = SECONDS) -> str:
    """Describe values by their range and median."""
    ends = (min(values), statistics.median(values), max(values))
    low, middle, high = (format_quantity(value, unit) for value in ends)
    return low if low == high else f"{low} to {high}, median {middle}"


def picture(kind: str, label: str, content: Iterable[Markup], **size: object) -> Markup:
    """Return a picture, and its description for screen readers."""
    return element("svg", *content, class_=kind, role="img", aria_label=label, **size)


def chart(kind: str, height: float, label: str, *content: Markup) -> Markup:
    """Return a picture that grows with its column."""
    return picture(f"chart {kind}", label, content, viewBox=f"0 0 {WIDTH} {short(height)}")


def across(kind: str, height: float, label: str, *content: Markup) -> Markup:
    """Return a picture as wide as the page, in which places are percent."""
    return picture(kind, label, content, width="100%", height=height)


class Plot:
    """Columns of a chart over an axis that reaches all values, and lines to compare with."""

    def __init__(
        self,
        n: int,
        values: Iterable[float],
        compared: Mapping[str, float] = MappingProxyType({}),
        unit: str = SECONDS,
        height: int = 100,
    ) -> None:
        self.slot, self.bottom, self._unit, self._compared = PLOT / n, TOP + height, unit, compared
        every = [*values, *compared.values()]
        self.y = Axis.of(min(every), max(every), self.bottom, TOP, unit)

    def x(self, column: float) -> float:
        """Return the place of the left end of a column; that of its middle is half a column on."""
        return LEFT + column * self.slot

    def point(self, column: float, value: float) -> str:
        """Return the place of a value in a path."""
        return point(self.x(column), self.y.at(value))

    @property
    def lines(self) -> Markup:
        """Lines at the values to compare with, over what is drawn before them."""
        places = [f"M{LEFT},{short(self.y.at(value))}H{RIGHT}" for value in self._compared.values()]
        return path("under", *places) + Markup().join(map(path, _LINES, places))

    def figure(
        self,
        kind: str,
        caption: Iterable[str],
        label: str,
        *content: Markup,
        below: str,
        notes: Iterable[str] = (),
    ) -> Markup:
        """Return the chart of a kind with its caption, what it shows below its axis, and notes."""
        unit, compared = self._unit, self._compared.items()
        names = [f"{name} {format_quantity(at, unit)}" if unit else name for name, at in compared]
        words = text(below, RIGHT, self.bottom + 12, "end")
        drawn = chart(kind, self.bottom + 16, label, self.y.left(), *content, words)
        told = (element("p", elide(note, 300), class_="faint") for note in notes)
        keys = zip(map(line_sample, _LINES), names, strict=False)
        return figure(caption, drawn, *told, keys=keys)


_LINES = ("level", "level two")


def figure(
    caption: Iterable[str], *content: Markup, keys: Iterable[Key] = (), **attributes: object
) -> Markup:
    """Return pictures below their caption and the keys to their hatching and lines."""
    words = element("figcaption", "; ".join(filter(None, caption)))
    legend = Markup(" ").join(element("span", sample, what) for sample, what in keys)
    shown = element("p", legend, class_="keys") if legend else ""
    return element("figure", words, shown, *content, **attributes)


def hatching(part: str) -> str:
    """Return the fill of a part of the step."""
    return f"url(#h-{part})"


def readable(part: str) -> str:
    """Return the fill of a box of a part, hatched along its foot, so that a name can be read."""
    return f"url(#b-{part})"


def hatched(part: str) -> Markup:
    """Return a sample of the hatching of a part of the step."""
    return element("svg", element("rect", fill=hatching(part)), class_="key")


def line_sample(kind: str) -> Markup:
    """Return a sample of a line."""
    return element("svg", path(kind, "M0,7H14"), class_="key chart")


def box(
    left: float,
    width: float,
    top: float,
    fill: str,
    words: str,
    name: str = "",
    height: int = BOX_HEIGHT,
) -> Markup:
    """Return a box in percent of its picture's width, with a text for the pointer."""
    return element(
        "svg",
        title(words),
        element("rect", fill=fill),
        _name(name) if name else "",
        x=f"{left:.5g}%",
        width=f"{width:.5g}%",
        y=top or None,
        height=height,
    )


def _name(name: str) -> Markup:
    found = re.match(ENDS, name)
    parts = zip(TAGS, found.groups() if found else (name,), strict=False)
    shown = element("p", *(element(tag, part) for tag, part in parts if part))
    return element("foreignObject", element("div", shown), width="100%", height=BOX_HEIGHT)
