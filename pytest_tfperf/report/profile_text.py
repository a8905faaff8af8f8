"""A profile as text: the parts of its steps, its metrics, advice and tables."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from pytest_tfperf.metrics import format_quantity
from pytest_tfperf.report.text_layout import BOUNDLESS, fitted_table
from pytest_tfperf.results import Profile
from pytest_tfperf.text import plural
from pytest_tfperf.values import PARTS, Advice, Table

_TITLES = {part: part.replace("_", " ") for part in PARTS}
_FEW = 5  # rows of a table without -v


def render_profile(profile: Profile, verbose: bool, width: int = BOUNDLESS) -> str:
    """
    Render a profile.

    Args:
        profile: The profile.
        verbose: Whether to show all rows of tables, causes, and the reasons for unknown metrics.
        width: Columns of the terminal.
    """
    n_dropped = profile.n_dropped
    dropped = f", {plural(n_dropped, 'other event')} dropped" if n_dropped else ""
    head = f"{titled_steps(profile)}, from {profile.step_source}{dropped}"
    parts = [
        (title, format_quantity(mean, "s"), format_quantity(share, "0..1"))
        for title, mean, share in _parts(profile)
    ]
    registry = profile.registry
    known = [
        (name, format_quantity(value.number, registry[name].unit))
        for name, value in profile.metrics.items()
        if value.number is not None and name in registry
    ]
    lines = [head, *(f"note: {note}" for note in profile.notes)]
    lines += ["", number_table(["part of a step", "mean", "share"], parts)]
    lines += ["", *([number_table(["metric", "value"], known)] if known else [])]
    n_unknown = sum(value.number is None for value in profile.metrics.values())
    if n_unknown and not verbose:
        lines.append(f"and {plural(n_unknown, 'unknown metric')} (-v says why)")
    if profile.advice:
        lines += ["", "what to do next, by what it could win at most"]
        lines += map(_advised, profile.advice)
    for table in profile.tables.values():
        lines += ["", *render_table(table, verbose, width)]
    return "\n".join([*lines, *(_reasons(profile) if verbose else [])])


def titled_steps(profile: Profile) -> str:
    """Return the name and steps of a profile: `trace.xplane.pb: 20 steps`."""
    return f"{profile.name}: {plural(len(profile.steps), 'step')}"


def number_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of names and quantities."""
    sides = ["left", *["right"] * (len(titles) - 1)]
    return tabulate(rows, titles, "simple", disable_numparse=True, colalign=sides)


def _reasons(profile: Profile) -> list[str]:
    """List causes and advice of metrics, and the reasons for unknown ones."""
    values = profile.metrics.items()
    causes = [
        f"{name}, {key}: {value.detail[key]}"
        for name, value in values
        for key in ("where", "try")
        if value.detail.get(key)
    ]
    unknown = [f"{name} is unknown: {value.why}" for name, value in values if value.number is None]
    return ["", *causes, "", *unknown]


def render_table(table: Table, verbose: bool, width: int = BOUNDLESS) -> list[str]:
    """
    Render a table.

    Args:
        table: The table.
        verbose: Whether to show all rows that were kept.
        width: Columns of the terminal.
    """
    shown = table.rows if verbose else table.rows[:_FEW]
    cells = [
        [_cell(value, column.unit) for value, column in zip(row, table.columns, strict=True)]
        for row in shown
    ]
    sides = ["right" if column.unit else "left" for column in table.columns]
    more = table.n_more + len(table.rows) - len(shown)
    hint = "" if verbose else " (-v shows more)"
    titles = [column.title for column in table.columns]
    return [
        table.title,
        *fitted_table(titles, cells, sides, width),
        *([f"and {more} more{hint}"] if more else []),
    ]


def _cell(value: object, unit: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return format_quantity(value, unit) if unit else f"{value:.3g}"
    return str(value)


def _advised(advice: Advice) -> str:
    win = f"up to {format_quantity(advice.win_s, 's')} a step: " if advice.win_s is not None else ""
    return f"  {win}{advice.what} ({advice.because}; look at {advice.look})"


def _parts(profile: Profile) -> Sequence[tuple[str, float, float]]:
    """Title, mean seconds and share of the period of each part, and of the whole step."""
    period = sum(step.period_s for step in profile.steps)
    sums = {part: sum(step.parts_s[part] for step in profile.steps) for part in PARTS}
    rows = [
        (_TITLES[part], total / len(profile.steps), total / period)
        for part, total in sums.items()
        if total > 0
    ]
    return [*sorted(rows, key=lambda row: -row[1]), ("step", period / len(profile.steps), 1.0)]
