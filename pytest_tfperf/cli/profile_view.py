"""The output of `tfperf analyze`: a first screen with the bottleneck, and all tables with -v."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_tfperf.cli.terminal import (
    TIMELINES,
    Line,
    Screen,
    Span,
    labelled,
    line,
    number_table,
    profile_table,
)
from pytest_tfperf.metrics.multi_host import AnalysedTrace
from pytest_tfperf.quantities import format_quantity
from pytest_tfperf.report.step_verdict import (
    Part,
    key_figures,
    parts_of,
    steps_title,
    top_ops,
    verdict,
)
from pytest_tfperf.results import Profile
from pytest_tfperf.text import plural
from pytest_tfperf.values import Advice

_BAR_WIDTH = 72
_GLYPHS, _ASCII_GLYPHS = "█▒░▓·", "#=-+."
_COLOURS = {
    "compile": "red",
    "output": "bright_magenta",
    "input": "yellow",
    "kernel_launch": "cyan",
    "host_compute": "blue",
    "collective": "bright_yellow",
    "device_to_device": "bright_cyan",
    "device_compute": "green",
    "other": "magenta",
}
_FEW_ADVICE = 3


def profile_view(analysed: AnalysedTrace, verbosity: int, screen: Screen) -> Iterator[str | Line]:
    """
    Yield what is shown of a trace.

    Args:
        analysed: The analysed trace.
        verbosity: 0 for the first screen, 1 for all tables, 2 for all their rows.
        screen: What the lines are for.
    """
    profile = analysed.profile
    yield from _first_screen(analysed, verbosity, screen)
    if not verbosity:
        yield line((_hidden(profile), "dim"))
        return
    yield from _parts_and_metrics(profile, screen)
    for key, table in profile.tables.items():
        if key in TIMELINES and verbosity < 2:
            continue
        yield ""
        yield from profile_table(key, table, verbosity, screen)
    yield from _reasons(profile)


def _first_screen(analysed: AnalysedTrace, verbosity: int, screen: Screen) -> Iterator[str | Line]:
    profile = analysed.profile
    facts = (analysed.framework, analysed.devices, steps_title(profile), _dropped(profile))
    yield line((profile.name, "bold"), f": {', '.join(filter(None, facts))}")
    if parts := parts_of(profile):
        yield _bar(parts, screen)
        yield _legend(parts, screen)
    sentence = verdict(profile, analysed.devices)
    yield line(("Verdict: ", "bold"), (sentence, "bold yellow"))
    yield from _advice(profile.advice, verbosity)
    if figures := key_figures(profile):
        yield f"Key figures: {' · '.join(figures)}"
    place, ops = top_ops(profile)
    if ops:
        yield f"Top ops of {place}: {', '.join(ops)}"
    for note in profile.notes:
        yield from labelled([("note:", note)])


def _dropped(profile: Profile) -> str:
    n_dropped = profile.n_dropped
    return f"{plural(n_dropped, 'other event')} dropped" if n_dropped else ""


def _bar(parts: Sequence[Part], screen: Screen) -> Line:
    """Draw the parts of the mean step side by side."""
    n_cells = min(_BAR_WIDTH, screen.width)
    whole = sum(part.share for part in parts)
    exact = [part.share / whole * n_cells for part in parts]
    lengths = [int(cells) for cells in exact]
    by_rest = sorted(range(len(parts)), key=lambda n: lengths[n] - exact[n])
    for n in by_rest[: n_cells - sum(lengths)]:
        lengths[n] += 1
    glyphs = zip(_glyphs(parts, screen), lengths, strict=True)
    return line(*((glyph * length, style) for (glyph, style), length in glyphs), deeper=None)


def _legend(parts: Sequence[Part], screen: Screen) -> Line:
    """Name the parts of the bar with their shares; a line ends between two parts."""
    legend: list[str | Span] = []
    used = 0
    for glyph, part in zip(_glyphs(parts, screen), parts, strict=True):
        named = f" {part.title} {format_quantity(part.share, '0..1')}"
        gap = "" if not legend else "  " if used + len(named) + 3 <= screen.width else "\n"
        used = (0 if gap == "\n" else used + len(gap)) + 1 + len(named)
        legend += [gap, glyph, named]
    return line(*legend, deeper=None)


def _glyphs(parts: Sequence[Part], screen: Screen) -> list[Span]:
    """Return the marks of the parts, which differ without colours too."""
    glyphs = _ASCII_GLYPHS if screen.ascii_only else _GLYPHS
    return [(glyphs[min(n, len(glyphs) - 1)], _COLOURS[part.key]) for n, part in enumerate(parts)]


def _advice(advice: Sequence[Advice], verbosity: int) -> Iterator[str | Line]:
    if not advice:
        yield "No advice: nothing exceeds its threshold."
        return
    kept = advice if verbosity else advice[:_FEW_ADVICE]
    yield "What to do, by the time that it saves at most:"
    yield from labelled([(f"  {n}.", _advised(one, verbosity)) for n, one in enumerate(kept, 1)])
    if len(kept) < len(advice):
        yield line((f"  and {len(advice) - len(kept)} more (-v shows all)", "dim"))


def _advised(advice: Advice, verbosity: int) -> str:
    win = f"up to {format_quantity(advice.win_s, 's')} a step: " if advice.win_s is not None else ""
    look = f"; look at {advice.look}" if verbosity and advice.look else ""
    return f"{win}{advice.what} ({advice.because}{look})"


def _hidden(profile: Profile) -> str:
    """Name what -v adds."""
    n_known = sum(value.number is not None for value in profile.metrics.values())
    n_unknown = len(profile.metrics) - n_known
    unknown = f", and why {plural(n_unknown, 'metric is', 'metrics are')} unknown"
    n_tables = len(profile.tables.keys() - TIMELINES)
    shown_too = f"{plural(n_known, 'metric')} and {plural(n_tables, 'table')}"
    return f"-v shows {shown_too}{unknown if n_unknown else ''}."


def _parts_and_metrics(profile: Profile, screen: Screen) -> Iterator[str | Line]:
    """Yield the tables of parts and of known metrics."""
    parts = parts_of(profile)
    rows = [
        (part.title, format_quantity(part.mean_s, "s"), format_quantity(part.share, "0..1"))
        for part in parts
    ]
    if parts:
        mean_s = sum(step.period_s for step in profile.steps) / len(profile.steps)
        yield ""
        whole = ("step", format_quantity(mean_s, "s"), "100 %")
        yield from number_table(["part of a step", "mean", "share"], [*rows, whole], screen.width)
    known = [
        (name, format_quantity(value.number, profile.registry[name].unit))
        for name, value in profile.metrics.items()
        if value.number is not None and name in profile.registry
    ]
    if known:
        yield ""
        yield from number_table(["metric", "value"], known, screen.width)


def _reasons(profile: Profile) -> Iterator[str | Line]:
    """Yield causes and advice of metrics, and the reasons for unknown ones."""
    values = profile.metrics.items()
    causes = [
        (f"{name}, {key}:", str(value.detail[key]))
        for name, value in values
        for key in ("traced", "where", "try")
        if value.detail.get(key)
    ]
    unknown = [
        (f"{name} is unknown:", value.why or "") for name, value in values if value.number is None
    ]
    for rows in (causes, unknown):
        if rows:
            yield ""
            for row in rows:
                yield " ".join(row)
