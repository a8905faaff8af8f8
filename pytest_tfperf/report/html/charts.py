"""Charts of a profile: its steps, step times, recorded runs, ratios, memory and roofline."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, count
from typing import Any

import numpy as np
from markupsafe import Markup

from pytest_tfperf.baseline.level_changes import LevelChanges, level_changes, run_name
from pytest_tfperf.quantities import BYTES, FLOP_RATE, SECONDS, format_quantity, format_ratio
from pytest_tfperf.report.html.svg import (
    LEFT,
    PLOT,
    RIGHT,
    TOP,
    Axis,
    Plot,
    chart,
    element,
    figure,
    hatching,
    path,
    point,
    range_text,
    short,
    text,
    title,
)
from pytest_tfperf.text import elide, plural
from pytest_tfperf.values import PARTS, Step, Table

_TALL = 160  # height of a plot with parts
_NAME_WIDTH, _LABEL_WIDTH = 100, 600  # characters
_BAND = (5.0, 95.0)  # percentiles of the runs since the last change of level


def steps_chart(
    steps: Sequence[Step], compared: Mapping[str, float], titles: Mapping[str, str]
) -> Markup | None:
    """Draw the first steps, stacked by part, and times to compare with; None without any time."""
    drawn = steps[:_MOST_STEPS]
    stacks = [[*accumulate((step.parts_s[part] for part in PARTS), initial=0.0)] for step in drawn]
    highest = max((stack[-1] for stack in stacks), default=0.0)
    if not highest > 0:
        return None
    plot = Plot(len(drawn), [0.0, highest], compared, height=_TALL)
    bars: dict[str, list[str]] = {}
    for n, stack in enumerate(stacks):
        edges = [round(plot.y.at(seconds)) for seconds in stack]  # a pixel each
        for part, low, high in zip(PARTS, edges, edges[1:], strict=False):
            if low > high:
                bars.setdefault(part, []).append(f"M{point(plot.x(n + 0.5), low)}v{high - low}")
    n_more = len(steps) - len(drawn)
    periods = range_text([step.period_s for step in steps])
    paths = (
        element("path", title(titles[part]), stroke=hatching(part), d="".join(parts))
        for part, parts in bars.items()
    )
    return plot.figure(
        "steps",
        ("traced steps by part", f"the first; {n_more} more are not drawn" if n_more else ""),
        f"{plural(len(steps), 'traced step')} by part, {periods}",
        element("g", *paths, stroke_width=min(0.84 * plot.slot, _WIDEST_BAR)),
        plot.lines,
        below="steps, in order",
    )


_MOST_STEPS, _WIDEST_BAR = 100, 40.0


def times_chart(what: str, series: Mapping[str, Sequence[float]]) -> Markup | None:
    """Draw series by the names of their medians, in the order of measuring; None without any."""
    known = {name: values for name, values in series.items() if values}
    if not known:
        return None
    near, far = _near([value for values in known.values() for value in values], and_twice=True)
    medians = {name: statistics.median(values) for name, values in known.items()}
    plot = Plot(max(map(len, known.values())), _ends(near), medians)
    kinds = zip(("dot", "square"), known.values(), strict=False)
    are = "is" if len(far) == 1 else "are"
    slow = f"{len(far)} far slower, up to {format_quantity(max(far), SECONDS)}" if far else ""
    return plot.figure(
        "times",
        (f"time of a step: {what}", f"{slow}, {are} not drawn" if far else ""),
        f"{what}: " + "; ".join(f"{len(one)} of {range_text(one)}" for one in known.values()),
        plot.lines,
        *(_dots(plot, kind, values, near) for kind, values in kinds),
        below="in order",
    )


_MOST_DOTS = 200
_FAR = 5  # interquartile ranges beyond the quartiles, from which on a value is far away
_FEW = 8  # values, of which none is far away
_LEAST_RANGE = 0.04  # of the axis, as a share; its ticks need three digits then


def _dots(
    plot: Plot, kind: str, values: Sequence[float], near: Sequence[float], first: int = 0
) -> Markup:
    """Draw some values from a column on, if they are near the others."""
    low, high, step = min(near), max(near), -(-len(near) // _MOST_DOTS)
    drawn = ((n, values[n]) for n in range(0, len(values), step) if low <= values[n] <= high)
    # whole units, since a page has thousands of dots
    places = (f"M{plot.x(first + n + 0.5):.0f},{plot.y.at(one):.0f}h0" for n, one in drawn)
    return path(f"{kind} small", *places)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis on which noise of less than a few percent looks small."""
    low, high = min(values), max(values)
    more = max(_LEAST_RANGE * high - (high - low), 0.0) / 2
    return low - more, high + more


def _near(values: Sequence[float], and_twice: bool = False) -> tuple[list[float], list[float]]:
    """Return the values that are drawn, and those far away, if asked by the median or more."""
    if len(values) < _FEW:
        return list(values), []
    low, middle, high = statistics.quantiles(values, n=4)
    reach = max(_FAR * (high - low), middle if and_twice else 0.0)
    near = [one for one in values if low - reach <= one <= high + reach]
    return near, [one for one in values if not low - reach <= one <= high + reach]


@dataclass(frozen=True, kw_only=True)
class History:
    """Recorded values of a metric, and what they are compared with."""

    values: Sequence[float]
    """The latest last."""
    commits: Sequence[str] = ()
    """Commit of each value, empty for one that is not known; the last ones may be missing."""
    anchor: float | None = None
    """Value of the first runs."""
    limit: float | None = None
    """Largest value that is tolerated."""
    bounds: tuple[float, float] | None = None
    """Interval of the latest value."""
    is_judged: bool = True
    """False for a history without a verdict, which has a range to expect instead."""
    metric: str = "step time"
    unit: str = SECONDS
    """As people read it."""

    @cached_property
    def changes(self) -> LevelChanges:
        """Changes of level."""
        return level_changes(self.values, self.commits, self.unit)

    @property
    def band(self) -> tuple[float, float] | None:
        """Range of nine in ten values since the last change of level; None with a verdict."""
        if self.is_judged:
            return None
        first = self.changes.points[-1].index if self.changes.points else 0
        low, high = np.percentile(self.values[first:], _BAND)
        return float(low), float(high)

    @property
    def text(self) -> str:
        """The values in words."""
        *runs, now = self.values
        first = "" if self.anchor is None else f", anchor {format_quantity(self.anchor, self.unit)}"
        return (
            f"{plural(len(runs), 'recorded run')} of {range_text(runs, self.unit)}, "
            f"now {format_quantity(now, self.unit)}{first}"
        )


def history_chart(history: History, named: bool = True) -> Markup | None:
    """Draw recorded runs and the latest one, and where their level changed; None for one run."""
    values, bounds, band = history.values, history.bounds, history.band
    if len(values) < 2:
        return None
    asked = {"anchor": history.anchor, "limit": history.limit}
    compared = {name: value for name, value in asked.items() if value is not None}
    shown = [*values, *(bounds or ()), *compared.values(), *(band or ())]
    plot = Plot(len(values), _ends(shown), compared, history.unit)
    middle, points = plot.x(len(values) - 0.5), [*map(plot.point, count(0.5), values[:-1])]
    changes = history.changes
    marked = zip(changes.points, changes.texts, strict=True)
    interval = "V".join(short(plot.y.at(one)) for one in bounds) if bounds else ""
    return plot.figure(
        "history",
        _history_caption(history, asked | {"interval of this run": bounds}),
        elide("; ".join((history.text, *changes.texts)), _LABEL_WIDTH),
        _band(plot, band),
        plot.lines,
        *(_change(plot.x(one.index + 0.5), words, plot.bottom) for one, words in marked),
        path("line", f"M{'L'.join(points)}"),
        path("square", *(f"M{one}h0" for one in points)),
        path("steady", *_steady(changes, plot, len(values))),
        _named_runs(history, plot) if named else Markup(),
        path("span", f"M{short(middle)},{interval}" if bounds else ""),
        element("circle", title("now"), class_="now", cx=middle, cy=plot.y.at(values[-1]), r=4),
        below="runs, the latest last",
        notes=changes.sentences,
    )


_BESIDE = 0.4  # slots that a level reaches to both sides of its first and last run


def _history_caption(history: History, asked: Mapping[str, object]) -> Iterator[str]:
    metric = elide(history.metric, _NAME_WIDTH)
    if not history.is_judged:
        yield f"{metric} history (round: the latest run"
        yield "shaded: nine in ten runs since the last change)"
        return
    yield f"{metric} history (round: this run)"
    if unknown := [name for name, value in asked.items() if value is None]:
        yield f"not known: {', '.join(unknown)}"


def _band(plot: Plot, ends: tuple[float, float] | None) -> Markup:
    """Shade the values between two ends."""
    if ends is None:
        return Markup()
    low, high = map(plot.y.at, ends)
    return element("rect", class_="band", x=LEFT, width=PLOT, y=high, height=low - high)


def _change(x: float, words: str, bottom: float) -> Markup:
    """Mark a change of level, and name it where the pointer comes near."""
    told, high = title(elide(words, _NAME_WIDTH)), bottom - TOP
    near = element("rect", told, class_="area", x=x - 6, y=TOP, width=12, height=high)
    return path("mark", f"M{point(x, TOP)}V{short(bottom)}") + near


def _steady(changes: LevelChanges, plot: Plot, n: int) -> list[str]:
    """Return the levels between changes, as parts of a path over `n` runs."""
    if not changes.points:
        return []
    values = [changes.points[0].before, *(one.after for one in changes.points)]
    edges = [changes.first, *(one.index for one in changes.points), n]
    return [
        f"M{plot.point(first + 0.5 - _BESIDE, value)}H{short(plot.x(end - 0.5 + _BESIDE))}"
        for value, first, end in zip(values, edges, edges[1:], strict=False)
    ]


def _named_runs(history: History, plot: Plot) -> Markup:
    """Return what is told of each recorded run where the pointer is."""
    told = []
    for n, value in enumerate(history.values[:-1]):
        words = f"{format_quantity(value, history.unit)}, {run_name(n, history.commits)}"
        named = title(elide(words, _NAME_WIDTH))
        told.append(element("circle", named, cx=plot.x(n + 0.5), cy=plot.y.at(value), r=6))
    return element("g", *told, class_="area")


def small_history(history: History) -> Markup:
    """Draw recorded runs and this run for a cell of a table, which is sorted by their ratio."""
    values = history.values
    low, high = min(values), max(values)
    shares = [(value - low) / (high - low) if high > low else 0.5 for value in values]
    places = [
        point(2 + n * 96 / (len(values) - 1), 2 + 6 * (1 - share)) for n, share in enumerate(shares)
    ]
    return element(
        "svg",
        title(history.text),
        element("path", d=f"M{'L'.join(places)}"),
        path("last", f"M{places[-1]}h0"),
        class_="mini runs",
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        role="img",
        data_rank=f"{values[-1] / values[0] if values[0] else 1.0:.4f}",
    )


def ratio_chart(
    turns: Sequence[Sequence[float]],
    sizes: Sequence[int],
    interval: tuple[float, float] | None,
    tolerance: float | None,
) -> Markup | None:
    """
    Draw the ratio of each pair of turns, by process pair, beside what was decided.

    A pair of turns has the seconds of a step in this and in the other version. Sizes are numbers of
    pairs of each process pair, the tolerance is a share.
    """
    ratios = [after / before for after, before in turns if before > 0 and after > 0]
    if not ratios or len(ratios) != len(turns):
        return None
    limit = None if tolerance is None else 1 + tolerance
    compared = {"equal": 1.0} | ({} if limit is None else {f"limit {format_ratio(limit)}": limit})
    near, far = _near(ratios)
    plot = Plot(len(ratios), [min(near), max(near), *(interval or ())], compared, "")
    ends = [*accumulate(sizes)] if sum(sizes) == len(ratios) else [len(ratios)]
    dots = (
        _dots(plot, "square" if pair % 2 else "dot", ratios[first:end], near, first)
        for pair, (first, end) in enumerate(zip([0, *ends], ends, strict=False))
    )
    decided = f"interval {' to '.join(map(format_ratio, interval))}" if interval else "no interval"
    return plot.figure(
        "ratios",
        (
            "ratio of each pair of turns, by process pair",
            f"shaded: {decided}" if interval else "not known: its interval",
            f"{len(far)} far away not drawn" if far else "",
        ),
        f"ratios of {plural(len(ratios), 'pair')} of turns in {plural(len(ends), 'pair')} of "
        f"processes, median {format_ratio(statistics.median(ratios))}; {decided}",
        _band(plot, interval),
        path("grid", *(f"M{point(plot.x(end), TOP)}V{plot.bottom}" for end in ends[:-1])),
        plot.lines,
        *dots,
        below="turns, the latest last",
    )


def memory_chart(table: Table) -> Markup | None:
    """Draw the memory in use over equal parts of a step, from zero; None if no size is known."""
    parts = [(record["into_step_s"], record["held"]) for record in table.records()]
    known = [size for _, size in parts if size is not None]
    if len(parts) < 2 or not known or not max(known) > 0:
        return None
    plot = Plot(len(parts), [0.0, max(known)], unit=BYTES)
    line, before = [], None
    for n, (_, size) in enumerate(parts):
        if size is not None:
            y = short(plot.y.at(size))
            line.append(f"M{plot.point(n, size)}" if before is None else f"V{y}")
            line.append(f"H{short(plot.x(n + 1))}")
        before = size
    duration = format_quantity((parts[1][0] - parts[0][0]) * len(parts), SECONDS)
    return plot.figure(
        "memory",
        ("memory over a step", "not known in the gaps" if len(known) < len(parts) else ""),
        f"memory over the {duration} of a step, at most {format_quantity(max(known), BYTES)}",
        path("held", *line),
        text(0, LEFT, plot.bottom + 12),
        below=duration,
    )


def roofline_chart(table: Table | None) -> Markup | None:
    """Draw the FLOP rate of each op by its FLOPs per byte, below the roof of the device."""
    records = table.records() if table else []
    ops = [
        record
        for record in records[:_MOST_OPS]
        if all((record.get(key) or 0.0) > 0 for key in ("self_s", "flop_rate", "flop_per_byte"))
    ]
    if not ops:
        return None
    roof = _roof(records)
    across = _decades([one["flop_per_byte"] for one in ops], LEFT, RIGHT)
    low, high = across.ticks[0], across.ticks[-1]
    powers = [low + (high - low) * n / 60 for n in range(61)]
    tops = [(power, top) for power in powers if (top := roof(10**power))]
    bottom = TOP + _TALL
    up = _decades([*(one["flop_rate"] for one in ops), *(top for _, top in tops)], bottom, TOP)
    places = [point(across.at(power), up.at(math.log10(top))) for power, top in tops]
    longest = max(one["self_s"] for one in ops)
    ticks = (f"M{point(across.at(power), TOP)}V{bottom}" for power in across.ticks)
    return figure(
        (
            "roofline: FLOP/s of each op by its FLOPs per byte; size: time",
            "" if places else "not known: the roof",
        ),
        chart(
            "roofline",
            bottom + 33,
            f"roofline of {plural(len(ops), 'op')}: " + "; ".join(map(_op_text, ops[:5])),
            up.left(),
            path("grid", *ticks),
            across.below(bottom + 15),
            path("roof", f"M{'L'.join(places)}") if places else Markup(),
            *(
                element(
                    "circle",
                    title(_op_text(one)),
                    class_="now",
                    cx=across.at(math.log10(one["flop_per_byte"])),
                    cy=up.at(math.log10(one["flop_rate"])),
                    r=max(_LARGEST * math.sqrt(one["self_s"] / longest), _SMALLEST),
                )
                for one in ops
            ),
            text("FLOP per byte", (LEFT + RIGHT) / 2, bottom + 29, "middle"),
        ),
    )


_MOST_OPS = 30
_LARGEST, _SMALLEST = 7.0, 2.0  # radii of dots
_PREFIXES = ("", "k", "M", "G", "T", "P", "E")


def _roof(records: Sequence[Mapping[str, Any]]) -> Callable[[float], float | None]:
    """Return the highest rate by FLOPs per byte, from the peaks that the ops' shares imply."""
    peaks = []
    for bound, rate, power in (("compute", "flop_rate", 0), ("memory", "bandwidth", 1)):
        found = [
            one[rate] / one["share_of_the_roof"]
            for one in records
            if one.get("bound_by") == bound and one.get("share_of_the_roof") and one.get(rate)
        ]
        peaks += [(statistics.median(found), power)] if found else []
    return lambda intensity: min((peak * intensity**power for peak, power in peaks), default=None)


def _decades(values: Sequence[float], start: float, end: float) -> Axis:
    """Return an axis of powers of ten around all values; its ticks are the powers."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    apart = -(-max(high - low, 1) // 5)
    powers = range(low, max(high, low + 1) + apart, apart)
    return Axis(powers, list(map(_power_text, powers)), start, end)


def _power_text(power: int) -> str:
    """Write a power of ten with the prefix of its unit: `100 G`."""
    place = min(max(power // 3, 0), len(_PREFIXES) - 1)
    return f"{10.0 ** (power - 3 * place):g} {_PREFIXES[place]}".rstrip()


def _op_text(record: Mapping[str, Any]) -> str:
    rate = format_quantity(record["flop_rate"], FLOP_RATE)
    bound = f", bound by {record['bound_by']}" if record.get("bound_by") else ""
    name = elide(str(record["op"]), _NAME_WIDTH)
    return f"{name}: {rate} at {format_quantity(record['flop_per_byte'])} FLOP per byte{bound}"
