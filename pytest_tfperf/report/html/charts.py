"""Charts of a profile: its steps, step times, recorded runs, ratios, memory and roofline."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from markupsafe import Markup

from pytest_tfperf.baseline.level_changes import LevelChanges, level_changes, run_name
from pytest_tfperf.quantities import BYTES, FLOP_RATE, SECONDS, format_quantity, format_ratio
from pytest_tfperf.report.html.svg import (
    LEFT,
    RIGHT,
    TOP,
    Axis,
    Key,
    chart,
    element,
    figure,
    line_sample,
    path,
    point,
    range_text,
    short,
    text,
    tick_texts,
    title,
)
from pytest_tfperf.text import elide, plural
from pytest_tfperf.values import PARTS, Step, Table

_PLOT, _MIDDLE = RIGHT - LEFT, (LEFT + RIGHT) / 2
_TALL, _LOW = 160, 100  # heights of plots


def steps_chart(steps: Sequence[Step], levels: Mapping[str, float]) -> Markup | None:
    """Draw the first steps, stacked by part, and times to compare with; None without any time."""
    drawn = steps[:_MOST_STEPS]
    highest = max((_stacked(step)[-1] for step in drawn), default=0.0)
    if not highest > 0:
        return None
    bottom, slot = TOP + _TALL, _PLOT / len(drawn)
    axis = Axis.of(0.0, max(highest, *levels.values(), 0.0), bottom, TOP)
    bars: dict[str, list[str]] = {}
    for n, step in enumerate(drawn):
        edges = [axis.at(seconds) for seconds in (0.0, *_stacked(step))]
        for part, low, high in zip(PARTS, edges, edges[1:], strict=False):
            if low > high:
                bar = f"M{point(LEFT + (n + 0.5) * slot, low)}v{short(high - low)}"
                bars.setdefault(part, []).append(bar)
    thick = min(0.84 * slot, _WIDEST_BAR)
    n_more = len(steps) - len(drawn)
    periods = range_text([step.period_s for step in steps])
    lines, keys = _levels(
        axis, {f"{name} {format_quantity(at, SECONDS)}": at for name, at in levels.items()}
    )
    return figure(
        ("traced steps by part", f"the first; {n_more} more are not drawn" if n_more else ""),
        chart(
            "steps",
            bottom + 16,
            f"{plural(len(steps), 'traced step')} by part, {periods}",
            axis.left(),
            *(
                element(
                    "path",
                    title(part.replace("_", " ")),
                    stroke=f"url(#h-{part})",
                    stroke_width=thick,
                    d="".join(parts),
                )
                for part, parts in bars.items()
            ),
            lines,
            text("steps, in order", _MIDDLE, bottom + 12, "middle"),
        ),
        keys=keys,
    )


_MOST_STEPS, _WIDEST_BAR = 100, 40.0


def _stacked(step: Step) -> list[float]:
    """Return the seconds up to the end of each part, in the order of `PARTS`."""
    total, edges = 0.0, []
    for part in PARTS:
        total += max(step.parts_s.get(part, 0.0), 0.0)
        edges.append(total)
    return edges


def _levels(axis: Axis, levels: Mapping[str, float]) -> tuple[Markup, list[Key]]:
    """Return lines at some values, over what is drawn, and the keys to them."""
    places = [f"M{LEFT},{short(axis.at(value))}H{RIGHT}" for value in levels.values()]
    kinds = ["level two" if n else "level" for n in range(len(places))]
    lines = (path(kind, place) for kind, place in zip(kinds, places, strict=True))
    keys = [(line_sample(kind), name) for kind, name in zip(kinds, levels, strict=True)]
    return path("under", *places) + Markup().join(lines), keys


def times_chart(
    samples: Mapping[str, tuple[str, Sequence[float]]], named: bool = True
) -> Markup | None:
    """
    Draw a histogram for each group of samples over one axis; None if there are no samples.

    Args:
        samples: Kind (`own` or `other`) and seconds of each group, by its name.
        named: True to give each bar its count and range as a text.
    """
    known = {name: (kind, values) for name, (kind, values) in samples.items() if values}
    if not known:
        return None
    far = {name: _far(values) for name, (_, values) in known.items()}
    near = {
        name: [one for one in values if one <= far[name]] for name, (_, values) in known.items()
    }
    every = [value for values in near.values() for value in values]
    low, high = min(every), max(every)
    if low == high:
        low, high = low * (1 - _ALIKE), high * (1 + _ALIKE)
    axis = Axis.of(low, high, LEFT, RIGHT)
    first, last = axis.ticks[0], axis.ticks[-1]
    n_bins = _n_bins(len(axis.ticks) - 1, max(map(len, near.values())))
    edges = [first + (last - first) * n / n_bins for n in range(n_bins + 1)]
    rows = []
    for n, (name, (kind, values)) in enumerate(known.items()):
        middle, base = statistics.median(values), TOP + (n + 1) * _ROW_HEIGHT - 8
        line = f"M{point(axis.at(middle), base)}v-{_BAR_HEIGHT}"
        said = f"{name} ({len(values)}), median {format_quantity(middle, SECONDS)}"
        rows += [
            _histogram(kind, near[name], axis, edges, base, named),
            path("under", line) + path("level", line),
            text(said, 2, base - _BAR_HEIGHT - 9),
        ]
    bottom = TOP + len(known) * _ROW_HEIGHT
    beyond = [one for name, (_, values) in known.items() for one in values if one > far[name]]
    unknown = ", ".join(name for name in samples if name not in known)
    label = "; ".join(
        f"{n}: {len(values)} of {range_text(values)}" for n, (_, values) in known.items()
    )
    return figure(
        (
            "time of a step, and how many samples took it",
            _beyond(beyond),
            f"not known: {unknown}" if unknown else "",
        ),
        chart("times", bottom + 16, label, *rows, axis.below(bottom + 12)),
    )


_FAR = 5  # interquartile ranges above the upper quartile
_ROW_HEIGHT, _BAR_HEIGHT, _LEAST_HEIGHT = 66, 40, 1.0
_BINS_PER_TICK, _MOST_BINS = (1, 2, 5, 10, 20), 50
_ALIKE = 0.01  # how far the axis reaches on both sides of samples that are all the same
_ROUNDING = 1e-9


def _far(values: Sequence[float]) -> float:
    """Return the seconds above which a sample is an outlier; few samples have none."""
    if len(values) < 8:
        return math.inf
    low, middle, high = statistics.quantiles(values, n=4)
    return max(high + _FAR * (high - low), 2 * middle)


def _beyond(far: Sequence[float]) -> str:
    if not far:
        return ""
    are = "is" if len(far) == 1 else "are"
    return f"{len(far)} far slower, up to {format_quantity(max(far), SECONDS)}, {are} not drawn"


def _n_bins(n_intervals: int, n_samples: int) -> int:
    """Return the number of bars: the square root of the samples or more, their edges round."""
    wanted = math.sqrt(n_samples)
    possible = [per * n_intervals for per in _BINS_PER_TICK if per * n_intervals <= _MOST_BINS]
    return next((n for n in possible if n >= wanted), max(possible, default=n_intervals))


def _histogram(
    kind: str, values: Sequence[float], axis: Axis, edges: Sequence[float], base: float, named: bool
) -> Markup:
    """Draw the bars of one group as upright strokes over a base, with the count of the highest."""
    n_bins, wide = len(edges) - 1, (edges[-1] - edges[0]) / (len(edges) - 1)
    # the last edge belongs to the last bar
    places = (min(int((one - edges[0]) / wide + _ROUNDING), n_bins - 1) for one in values)
    counts, texts = Counter(places), tick_texts(edges)
    most, top = max(counts.values()), base - _BAR_HEIGHT
    bars = [
        (
            f"M{point(LEFT + (n + 0.5) * _PLOT / n_bins, base)}"
            f"v{short(-max(_BAR_HEIGHT * count / most, _LEAST_HEIGHT))}",
            f"{count} from {texts[n]} to {texts[n + 1]}",
        )
        for n, count in sorted(counts.items())
    ]
    strokes = (
        [element("path", title(words), d=bar) for bar, words in bars]
        if named
        else [element("path", d="".join(bar for bar, _ in bars))]
    )
    ticks = (f"M{point(axis.at(tick), top)}V{short(base)}" for tick in axis.ticks)
    return Markup().join(
        (
            path("grid", *ticks),
            element("g", *strokes, class_=kind, stroke_width=max(_PLOT / n_bins - 1, 1.0)),
            path("grid", f"M{LEFT},{short(base)}H{RIGHT}M{LEFT},{short(top)}h-4"),
            element("g", text(most, LEFT - 4, top), text(0, LEFT - 4, base), class_="up"),
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRuns:
    """A history of step times, or of the values of another metric."""

    runs: Sequence[float]
    """Step times in seconds, or values in the unit, the latest last."""
    commits: Sequence[str] = ()
    """Commit of each run, empty for one that is not known; or nothing if no commit is known."""
    anchor: float | None = None
    """Step time of the first runs, if it is known."""
    metric: str = "step time"
    unit: str = SECONDS
    band: tuple[float, float] | None = None
    """Range of the values to expect, if it is known."""


def history_chart(
    recorded: RecordedRuns,
    now: float,
    bounds: tuple[float, float] | None = None,
    limit: float | None = None,
    named: bool = True,
) -> Markup | None:
    """
    Draw recorded runs and this run, and where their level changed; None if no run is recorded.

    Args:
        recorded: The recorded runs.
        now: Value of this run.
        bounds: Interval of this run's value, if it is known.
        limit: Largest value that is tolerated, if it is known.
        named: True to give each run its value and commit as a text.
    """
    if not recorded.runs:
        return None
    every, unit = [*recorded.runs, now], recorded.unit
    named_levels = {"anchor": recorded.anchor, "limit": limit}
    levels = {name: value for name, value in named_levels.items() if value is not None}
    bottom, slot = TOP + _LOW, _PLOT / len(every)
    axis = _history_axis([*every, *(bounds or ()), *levels.values(), *(recorded.band or ())], unit)
    places = [(LEFT + (n + 0.5) * slot, axis.at(one)) for n, one in enumerate(every)]
    changes = level_changes(every, recorded.commits, unit)
    lines, keys = _levels(
        axis, {f"{name} {format_quantity(value, unit)}": value for name, value in levels.items()}
    )
    x, y = places[-1]
    marked = zip(changes.points, changes.texts, strict=True)
    picture = chart(
        "history",
        bottom + 16,
        elide("; ".join((_runs_text(recorded, now), *changes.texts)), _LABEL_WIDTH),
        axis.left(),
        _band(axis, recorded.band),
        lines,
        *(_change(places[point.index][0], words, bottom) for point, words in marked),
        path("line", "M" + "L".join(point(*place) for place in places[:-1])),
        path("square", *(f"M{point(*place)}h0" for place in places[:-1])),
        path("steady", *_steady(changes, axis, len(every))),
        _runs(recorded, places) if named else Markup(),
        path("span", f"M{short(x)},{short(axis.at(bounds[0]))}V{short(axis.at(bounds[1]))}")
        if bounds
        else Markup(),
        element("circle", title("now"), class_="now", cx=x, cy=y, r=4),
        text("runs, the latest last", RIGHT, bottom + 12, "end"),
    )
    return figure(
        _history_caption(recorded, named_levels | {"interval of this run": bounds}),
        picture,
        *(element("p", elide(one, 300), class_="faint") for one in changes.sentences),
        keys=keys,
    )


_LEAST_RANGE = 0.04  # of the axis, as a share; its ticks need three digits then
_BESIDE = 0.4  # slots that a level reaches to both sides of its first and last run
_NAME_WIDTH, _LABEL_WIDTH = 100, 600


def _history_caption(recorded: RecordedRuns, lines: Mapping[str, object]) -> Iterator[str]:
    metric = elide(recorded.metric, _NAME_WIDTH)
    if recorded.band:
        yield f"{metric} history (round: the latest run"
        yield "shaded: nine in ten runs since the last change)"
        return
    yield f"{metric} history (round: this run)"
    if unknown := [name for name, value in lines.items() if value is None]:
        yield f"not known: {', '.join(unknown)}"


def _history_axis(values: Sequence[float], unit: str) -> Axis:
    """Return an axis on which noise of less than a few percent looks small."""
    low, high = min(values), max(values)
    more = max(_LEAST_RANGE * high - (high - low), 0.0) / 2
    return Axis.of(low - more, high + more, TOP + _LOW, TOP, unit)


def _band(axis: Axis, ends: tuple[float, float] | None) -> Markup:
    """Shade the values between two ends."""
    if ends is None:
        return Markup()
    low, high = map(axis.at, ends)
    return element("rect", class_="band", x=LEFT, width=_PLOT, y=high, height=low - high)


def _change(x: float, words: str, bottom: float) -> Markup:
    """Mark a change of level, and name it where the pointer comes near."""
    near = element(
        "rect",
        title(elide(words, _NAME_WIDTH)),
        class_="area",
        x=x - 6,
        y=TOP,
        width=12,
        height=bottom - TOP,
    )
    return path("mark", f"M{point(x, TOP)}V{short(bottom)}") + near


def _steady(changes: LevelChanges, axis: Axis, n: int) -> list[str]:
    """Return the levels between changes, as parts of a path over `n` runs."""
    if not changes.points:
        return []
    values = [changes.points[0].before, *(one.after for one in changes.points)]
    edges = [changes.first, *(one.index for one in changes.points), n]
    slot = _PLOT / n
    return [
        f"M{point(LEFT + (first + 0.5 - _BESIDE) * slot, axis.at(value))}"
        f"H{short(LEFT + (end - 0.5 + _BESIDE) * slot)}"
        for value, first, end in zip(values, edges, edges[1:], strict=False)
    ]


def _runs(recorded: RecordedRuns, places: Sequence[tuple[float, float]]) -> Markup:
    """Return what is told of each recorded run where the pointer is."""
    texts = (
        f"{format_quantity(value, recorded.unit)}, {run_name(n, recorded.commits)}"
        for n, value in enumerate(recorded.runs)
    )
    told = (
        element("circle", title(elide(words, _NAME_WIDTH)), cx=x, cy=y, r=6)
        for (x, y), words in zip(places, texts, strict=False)
    )
    return element("g", *told, class_="area")


def _runs_text(recorded: RecordedRuns, now: float) -> str:
    unit, anchor = recorded.unit, recorded.anchor
    first = "" if anchor is None else f", anchor {format_quantity(anchor, unit)}"
    runs = f"{plural(len(recorded.runs), 'recorded run')} of {range_text(recorded.runs, unit)}"
    return f"{runs}, now {format_quantity(now, unit)}{first}"


def small_history(recorded: RecordedRuns, now: float) -> Markup | None:
    """Draw recorded runs and this run for a cell of a table; None if no run is recorded."""
    if not recorded.runs:
        return None
    every = [*recorded.runs, now]
    low, high = min(every), max(every)
    shares = [(value - low) / (high - low) if high > low else 0.5 for value in every]
    places = [
        point(2 + n * 96 / (len(every) - 1), 2 + 6 * (1 - share)) for n, share in enumerate(shares)
    ]
    return element(
        "svg",
        title(_runs_text(recorded, now)),
        element("path", d="M" + "L".join(places)),
        path("last", f"M{places[-1]}h0"),
        class_="mini runs",
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        role="img",
    )


def ratio_chart(
    turns: Sequence[Sequence[float]],
    sizes: Sequence[int],
    interval: tuple[float, float] | None,
    tolerance: float | None,
) -> Markup | None:
    """
    Draw the ratio of each pair of turns, by process pair, beside what was decided.

    Args:
        turns: Seconds of a step in this and in the other version, a pair for each two turns.
        sizes: Number of pairs of each process pair.
        interval: Interval of the ratio, if there is one.
        tolerance: Tolerated slow-down as a share, if it is known.
    """
    ratios = [after / before for after, before in turns if before > 0 and after > 0]
    if not ratios or len(ratios) != len(turns):
        return None
    limit = None if tolerance is None else 1 + tolerance
    levels = {"equal": 1.0} | ({} if limit is None else {f"limit {format_ratio(limit)}": limit})
    low, high = _near(ratios)
    bottom, slot, step = TOP + _LOW, _PLOT / len(ratios), -(-len(ratios) // _MOST_DOTS)
    shown = [low, high, *levels.values(), *(interval or ())]
    axis = Axis.of(min(shown), max(shown), bottom, TOP, "")
    lines, keys = _levels(axis, levels)
    ends = _ends(sizes, len(ratios))
    dots = [
        path(
            f"{'square' if pair % 2 else 'dot'} small",
            *(
                f"M{point(LEFT + (n + 0.5) * slot, axis.at(ratios[n]))}h0"
                for n in range(first, end, step)
                if low <= ratios[n] <= high
            ),
        )
        for pair, (first, end) in enumerate(zip([0, *ends], ends, strict=False))
    ]
    n_far = sum(not low <= one <= high for one in ratios)
    decided = f"interval {' to '.join(map(format_ratio, interval))}" if interval else "no interval"
    return figure(
        (
            "ratio of each pair of turns, by process pair",
            f"shaded: {decided}" if interval else "not known: its interval",
            f"{n_far} far away not drawn" if n_far else "",
        ),
        chart(
            "ratios",
            bottom + 16,
            f"ratios of {plural(len(ratios), 'pair')} of turns in {plural(len(ends), 'pair')} of "
            f"processes, median {format_ratio(statistics.median(ratios))}; {decided}",
            _band(axis, interval),
            axis.left(),
            path("grid", *(f"M{point(LEFT + end * slot, TOP)}V{bottom}" for end in ends[:-1])),
            lines,
            *dots,
            text("turns, the latest last", RIGHT, bottom + 12, "end"),
        ),
        keys=keys,
    )


_MOST_DOTS = 200
_FAR_RATIO = 6  # interquartile ranges beyond which a ratio is not drawn


def _ends(sizes: Sequence[int], n_turns: int) -> list[int]:
    """Return the number of turns up to the end of each process pair."""
    ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
    return ends if ends and ends[-1] == n_turns and min(sizes) > 0 else [n_turns]


def _near(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the range of the ratios that are drawn."""
    if len(ratios) < 4:
        return min(ratios), max(ratios)
    low, _, high = statistics.quantiles(ratios, n=4)
    reach = _FAR_RATIO * (high - low)
    near = [one for one in ratios if low - reach <= one <= high + reach]
    return min(near), max(near)


def memory_chart(parts: Sequence[tuple[float, float | None]]) -> Markup | None:
    """
    Draw the memory in use over a step, from zero; None if no size is known.

    Args:
        parts: Equal parts of a step: seconds at which each begins, and its bytes, if known.
    """
    known = [size for _, size in parts if size is not None]
    if len(parts) < 2 or not known or not max(known) > 0:
        return None
    bottom, wide = TOP + _LOW, _PLOT / len(parts)
    axis = Axis.of(0.0, max(known), bottom, TOP, BYTES)
    line, before = [], None
    for n, (_, size) in enumerate(parts):
        if size is not None:
            y = axis.at(size)
            line.append(f"M{point(LEFT + n * wide, y)}" if before is None else f"V{short(y)}")
            line.append(f"H{short(LEFT + (n + 1) * wide)}")
        before = size
    duration = format_quantity((parts[1][0] - parts[0][0]) * len(parts), SECONDS)
    most = format_quantity(max(known), BYTES)
    return figure(
        ("memory over a step", "not known in the gaps" if len(known) < len(parts) else ""),
        chart(
            "memory",
            bottom + 16,
            f"memory over the {duration} of a step, at most {most}",
            axis.left(),
            path("held", *line),
            text(0, LEFT, bottom + 12),
            text(duration, RIGHT, bottom + 12, "end"),
        ),
    )


def roofline_chart(table: Table | None) -> Markup | None:
    """
    Draw the FLOP rate of each op over its FLOPs per byte, below the roof of the device.

    Both axes are logarithmic. None without an op whose FLOPs and bytes are known.
    """
    keys = {"op", "self_s", "flop_rate", "flop_per_byte"}
    if table is None or not keys <= {column.key for column in table.columns}:
        return None
    ops = [
        record
        for record in table.records()[:_MOST_OPS]
        if all(_is_positive(record.get(key)) for key in ("self_s", "flop_rate", "flop_per_byte"))
    ]
    if not ops:
        return None
    roof = _roof(table.records())
    across = _decades([one["flop_per_byte"] for one in ops], LEFT, RIGHT, "g")
    tops = [(power, roof(10**power)) for power in _sixtieths(across)]
    rates = [*(one["flop_rate"] for one in ops), *(top for _, top in tops if top is not None)]
    bottom = TOP + _TALL
    up = _decades(rates, bottom, TOP, "rate")
    places = [point(across.at(power), up.at(math.log10(top))) for power, top in tops if top]
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
            path("roof", "M" + "L".join(places)) if places else Markup(),
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
            text("FLOP per byte", _MIDDLE, bottom + 29, "middle"),
        ),
    )


_MOST_OPS = 30
_LARGEST, _SMALLEST = 7.0, 2.0  # radii of dots
_PREFIXES = ("", "k", "M", "G", "T", "P", "E")


def _roof(records: Sequence[Mapping[str, Any]]) -> Callable[[float], float | None]:
    """Return the highest rate by FLOPs per byte, from the peaks that the ops' shares imply."""
    found: dict[str, list[float]] = {"compute": [], "memory": []}
    for record in records:
        share, bound = record.get("share_of_the_roof"), record.get("bound_by")
        rate = record.get("flop_rate") if bound == "compute" else record.get("bandwidth")
        if bound in found and _is_positive(share) and _is_positive(rate):
            found[bound].append(rate / share)
    peak, bandwidth = (
        statistics.median(one) if one else None for one in (found["compute"], found["memory"])
    )

    def at(intensity: float) -> float | None:
        slope = None if bandwidth is None else bandwidth * intensity
        return min((one for one in (slope, peak) if one is not None), default=None)

    return at


def _decades(values: Sequence[float], start: float, end: float, form: str) -> Axis:
    """Return an axis of powers of ten around all values; its ticks are the powers."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    apart = -(-max(high - low, 1) // 5)
    powers = range(low, max(high, low + 1) + apart, apart)
    texts = [_power_text(n) if form == "rate" else f"{10.0**n:g}" for n in powers]
    return Axis(powers, texts, start, end)


def _sixtieths(axis: Axis) -> list[float]:
    low, high = axis.ticks[0], axis.ticks[-1]
    return [low + (high - low) * n / 60 for n in range(61)]


def _power_text(power: int) -> str:
    """Write a power of ten with the prefix of its unit: `100 G`."""
    place = min(max(power // 3, 0), len(_PREFIXES) - 1)
    return f"{10.0 ** (power - 3 * place):g} {_PREFIXES[place]}".rstrip()


def _op_text(record: Mapping[str, Any]) -> str:
    rate = format_quantity(record["flop_rate"], FLOP_RATE)
    bound = f", bound by {record['bound_by']}" if record.get("bound_by") else ""
    name = elide(str(record["op"]), _NAME_WIDTH)
    return f"{name}: {rate} at {record['flop_per_byte']:.3g} FLOP per byte{bound}"


def _is_positive(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and 0 < value < math.inf
