"""
The charts of the HTML report as geometry: from seconds to places in a picture that is `WIDTH` wide; the template draws them.

Each chart is told by text besides: its `label` is read out, its parts and samples are named, and no two differ by colour alone.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pytest_tfperf.metrics import BYTES, SECONDS, format_quantity
from pytest_tfperf.text import plural
from pytest_tfperf.values import PARTS, Step

WIDTH, LEFT, RIGHT = 360, 48, 8
PLOT = WIDTH - LEFT - RIGHT
STEPS_HEIGHT, HISTORY_HEIGHT, ROW_HEIGHT = 160, 100, 44
TOP = 10
MOST_STEPS, MOST_DOTS = 100, 40
_WIDEST_BAR = 40.0
_FAR = 5  # interquartile ranges above the upper quartile
_DOT, _PILE = 5.0, 22.0  # the size of a dot, and how high dots pile up
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@dataclass(frozen=True, slots=True)
class Mark:
    """A tick or a line at a place, with its text."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A picture with an axis of `ticks`: how high it is, where its axis lies, and what it shows, in words."""

    height: int
    bottom: float
    ticks: tuple[Mark, ...]
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChart(Chart):
    """
    Steps side by side, each stacked by part from the bottom up; `lines` are times to compare with.

    `bars` are an SVG path for each part, one upright stroke a step, `thick` wide.
    """

    bars: tuple[tuple[str, str], ...]
    thick: float
    lines: tuple[Mark, ...]
    n_more: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """
    One row of dots, piled up where they are alike: `path` has one for each of the `n` samples, if they are not very many.

    `middle` is their median.
    """

    name: str
    kind: str
    base: float
    path: str
    middle: Mark
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadChart(Chart):
    """Rows of samples over one axis of seconds; `beyond` says which are not drawn, since the others would be one dot beside them."""

    rows: tuple[Samples, ...]
    beyond: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryChart(Chart):
    """Recorded runs from old to new and this run behind them; `span` is the interval of its time, `anchor` a level line."""

    path: str
    dots: str
    now: tuple[float, float]
    span: str
    anchor: Mark | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryChart(Chart):
    """What is held over the time of a step, from zero; `end` is the time at its right."""

    path: str
    end: str


def ticks_between(low: float, high: float, n: int = 4) -> list[float]:
    """Round numbers, 1, 2 or 5 times a power of ten apart, about `n` + 1 of them, from below `low` to above `high`."""
    wide = high - low or abs(high) or 1.0
    rough = wide / n
    power = 10.0 ** math.floor(math.log10(rough))
    apart = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / apart + 1e-9), math.ceil(high / apart - 1e-9)
    return [number * apart for number in range(first, max(last, first + 1) + 1)]


def tick_texts(ticks: Sequence[float]) -> list[str]:
    """Evenly spaced seconds in one unit, with the digits that tell them apart."""
    largest = max(map(abs, ticks))
    scale, unit = next((row for row in _UNITS if largest >= row[0]), _UNITS[-1])
    apart = (ticks[1] - ticks[0]) / scale
    digits = max(0, math.ceil(-math.log10(apart) - 1e-6))
    return [f"{tick / scale:.{digits}f} {unit}" for tick in ticks]


def step_chart(steps: Sequence[Step], lines: Mapping[str, float]) -> StepChart | None:
    """
    Return the first `MOST_STEPS` steps by part, on an axis from zero; `lines` are seconds of a step to compare with, by name.

    None where there is no step that took any time.
    """
    shown = steps[:MOST_STEPS]
    highest = max((_stacked(step)[-1] for step in shown), default=0.0)
    if not highest > 0:
        return None
    ticks = ticks_between(0.0, max(highest, *lines.values(), 0.0))
    bottom, per_second = TOP + STEPS_HEIGHT, STEPS_HEIGHT / ticks[-1]
    slot = PLOT / len(shown)
    paths: dict[str, list[str]] = {}
    for n, step in enumerate(shown):
        edges = [round(bottom - seconds * per_second, 1) for seconds in (0.0, *_stacked(step))]
        for part, low, high in zip(PARTS, edges, edges[1:], strict=False):
            if low > high:
                box = f"M{short(LEFT + (n + 0.5) * slot)},{short(low)}v{short(high - low)}"
                paths.setdefault(part, []).append(box)
    periods = [step.period_s for step in steps]
    return StepChart(
        height=bottom + 16,
        bottom=bottom,
        ticks=_marks(ticks, lambda seconds: bottom - seconds * per_second),
        bars=tuple((part, "".join(boxes)) for part, boxes in paths.items()),
        thick=min(0.84 * slot, _WIDEST_BAR),
        lines=tuple(
            Mark(round(bottom - seconds * per_second, 1), f"{name} {_seconds(seconds)}")
            for name, seconds in lines.items()
        ),
        n_more=len(steps) - len(shown),
        label=f"{plural(len(steps), 'traced step')} by part, {_range(periods)}",
    )


def spread_chart(
    samples: Mapping[str, tuple[str, Sequence[float]]], most: int = MOST_DOTS
) -> SpreadChart | None:
    """
    Samples of seconds by name, each with its kind (dot, square, tick), over one axis; None where there are none.

    Of a row with more than `most` samples those at even distances are drawn.
    """
    known = {name: (kind, values) for name, (kind, values) in samples.items() if values}
    if not known:
        return None
    near = {
        name: sorted(value for value in values if value <= _far(values))
        for name, (_, values) in known.items()
    }
    every = [value for values in near.values() for value in values]
    ticks = ticks_between(min(every), max(every))
    per_second = PLOT / (ticks[-1] - ticks[0])

    def place(seconds: float) -> float:
        return round(LEFT + (seconds - ticks[0]) * per_second, 1)

    rows = tuple(
        _samples(
            name,
            kind,
            near[name][:: math.ceil(len(near[name]) / most)],
            values,
            place,
            TOP + (n + 1) * ROW_HEIGHT - 4,
        )
        for n, (name, (kind, values)) in enumerate(known.items())
    )
    bottom = TOP + len(known) * ROW_HEIGHT + 4
    label = "; ".join(
        f"{name}: {len(values)} of {_range(values)}" for name, (_, values) in known.items()
    )
    far = [value for _, values in known.values() for value in values if value > _far(values)]
    beyond = (
        f"{len(far)} far slower, up to {_seconds(max(far))}, {'is' if len(far) == 1 else 'are'} not drawn"
        if far
        else ""
    )
    return SpreadChart(
        height=bottom + 16,
        bottom=bottom,
        ticks=_marks(ticks, place),
        rows=rows,
        beyond=beyond,
        label=label,
    )


def history_chart(
    runs: Sequence[float], now: float, anchor: float | None, bounds: tuple[float, float] | None
) -> HistoryChart | None:
    """Step times of recorded runs, the latest last, and of this run, whose time is within `bounds`; None where nothing is recorded."""
    if not runs:
        return None
    known = [*runs, now, *(bounds or ()), *([anchor] if anchor is not None else [])]
    ticks = ticks_between(min(known), max(known))
    bottom, per_second = TOP + HISTORY_HEIGHT, HISTORY_HEIGHT / (ticks[-1] - ticks[0])

    def level(seconds: float) -> float:
        return round(bottom - (seconds - ticks[0]) * per_second, 1)

    apart = PLOT / (len(runs) + 1)
    places = [
        (round(LEFT + (n + 0.5) * apart, 1), level(seconds))
        for n, seconds in enumerate([*runs, now])
    ]
    path = "M" + "L".join(f"{short(x)},{short(y)}" for x, y in places[:-1])
    dots = "".join(f"M{short(x)},{short(y)}h0" for x, y in places[:-1])
    span = (
        f"M{short(places[-1][0])},{short(level(bounds[0]))}V{short(level(bounds[1]))}"
        if bounds
        else ""
    )
    return HistoryChart(
        height=bottom + 16,
        bottom=bottom,
        ticks=_marks(ticks, level),
        path=path,
        dots=dots,
        now=places[-1],
        span=span,
        anchor=None if anchor is None else Mark(level(anchor), f"anchor {_seconds(anchor)}"),
        label=f"{plural(len(runs), 'recorded run')} of {_range(runs)}, now {_seconds(now)}"
        + (f", anchor {_seconds(anchor)}" if anchor is not None else ""),
    )


def memory_chart(parts: Sequence[tuple[float, float | None]]) -> MemoryChart | None:
    """Bytes in equal parts of a step, each with the seconds at which it begins, None where it is not known; None without any."""
    known = [size for _, size in parts if size is not None]
    if len(parts) < 2 or not known or not max(known) > 0:
        return None
    scale = 1024.0 ** math.floor(math.log(max(known), 1024))
    ticks = [tick * scale for tick in ticks_between(0.0, max(known) / scale)]
    bottom, per_byte, wide = TOP + HISTORY_HEIGHT, HISTORY_HEIGHT / ticks[-1], PLOT / len(parts)
    path, before = "", None
    for n, (_, size) in enumerate(parts):
        if size is not None:
            y = short(bottom - size * per_byte)
            path += f"{f'M{short(LEFT + n * wide)},{y}' if before is None else f'V{y}'}H{short(LEFT + (n + 1) * wide)}"
        before = size
    most, duration = (
        format_quantity(max(known), BYTES),
        _seconds((parts[1][0] - parts[0][0]) * len(parts)),
    )
    return MemoryChart(
        height=bottom + 16,
        bottom=bottom,
        path=path,
        end=duration,
        label=f"memory over the {duration} of a step, at most {most}",
        ticks=tuple(
            Mark(round(bottom - tick * per_byte, 1), format_quantity(tick, BYTES)) for tick in ticks
        ),
    )


def _far(values: Sequence[float]) -> float:
    """Return the seconds above which a sample is far from the others; few samples have no others to be far from."""
    if len(values) < 8:
        return math.inf
    low, middle, high = statistics.quantiles(values, n=4)
    return max(high + _FAR * (high - low), 2 * middle)


def _stacked(step: Step) -> list[float]:
    """Seconds up to the end of each part, in the order of `PARTS`."""
    total, edges = 0.0, []
    for part in PARTS:
        total += max(step.parts_s.get(part, 0.0), 0.0)
        edges.append(total)
    return edges


def _samples(
    name: str,
    kind: str,
    drawn: Sequence[float],
    values: Sequence[float],
    place: Callable[[float], float],
    base: float,
) -> Samples:
    """Return a dot for each of the sorted values that are drawn, on top of those that it would cover."""
    piles: dict[int, list[int]] = {}
    for value in drawn:
        piles.setdefault(int(place(value) / _DOT), []).append(round(place(value)))
    up = min(_DOT, _PILE / max(len(pile) for pile in piles.values()))
    dot = "v-14" if kind == "tick" else "h0"
    path = "".join(
        f"M{x},{short(base - n * up)}{dot}" for pile in piles.values() for n, x in enumerate(pile)
    )
    middle = statistics.median(values)
    return Samples(
        name=name,
        kind=kind,
        base=base,
        path=path,
        middle=Mark(place(middle), _seconds(middle)),
        n=len(values),
    )


def _marks(ticks: Sequence[float], place: Callable[[float], float]) -> tuple[Mark, ...]:
    return tuple(
        Mark(round(place(tick), 1), text)
        for tick, text in zip(ticks, tick_texts(ticks), strict=True)
    )


def _range(values: Sequence[float]) -> str:
    low, high = _seconds(min(values)), _seconds(max(values))
    return low if low == high else f"{low} to {high}, median {_seconds(statistics.median(values))}"


def _seconds(value: float) -> str:
    return format_quantity(value, SECONDS)


def short(number: float) -> str:
    """With one digit behind the point, if any is needed."""
    return f"{number:.1f}".removesuffix(".0") if abs(number) >= 0.05 else "0"
