"""A profile of a trace as text: where the time of its steps went, and every metric."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from pytest_tfperf.metrics import format_quantity
from pytest_tfperf.report.text_layout import BOUNDLESS, fitted_table
from pytest_tfperf.results import Profile
from pytest_tfperf.text import plural
from pytest_tfperf.values import PARTS, Advice, Table

_TITLES = {part: part.replace("_", " ") for part in PARTS}
_FEW = 5  # rows of a table that are shown without -v


def render_profile(profile: Profile, verbose: bool, width: int = BOUNDLESS) -> str:
    """Steps, parts and metrics of a profile, its tables that wide; with `verbose` also the metrics that are unknown, and why."""
    n_dropped = profile.n_dropped
    dropped = f", {plural(n_dropped, 'other event')} dropped" if n_dropped else ""
    head = f"{said_steps(profile)}, from {profile.step_source}{dropped}"
    parts = [
        (title, format_quantity(mean, "s"), format_quantity(share, "0..1"))
        for title, mean, share in _parts(profile)
    ]
    lines = [
        head,
        *(f"note: {note}" for note in profile.notes),
        "",
        tabulate(
            parts,
            ["part of a step", "mean", "share"],
            "simple",
            disable_numparse=True,
            colalign=("left", "right", "right"),
        ),
    ]
    rows, values = profile.registry, profile.metrics.items()
    known = [
        (name, format_quantity(value.number, rows[name].unit))
        for name, value in values
        if value.number is not None and name in rows
    ]
    lines += [
        "",
        tabulate(
            known, ["metric", "value"], "simple", disable_numparse=True, colalign=("left", "right")
        ),
    ]
    lines += (
        ["", "what to do next, by what it could win at most", *map(_advised, profile.advice)]
        if profile.advice
        else []
    )
    for table in profile.tables.values():
        lines += ["", *render_table(table, verbose, width)]
    return "\n".join([*lines, *(_reasons(profile) if verbose else [])])


def said_steps(profile: Profile) -> str:
    """`trace.xplane.pb: 20 steps`."""
    return f"{profile.name}: {plural(len(profile.steps), 'step')}"


def _reasons(profile: Profile) -> list[str]:
    """Where each metric comes from and what to try, and why the others are unknown."""
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
    """Return a table's title, its first rows (with `verbose` all that were kept) that wide, and how many more there are."""
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
    """Title, mean seconds and share of the period of each part that there is, and of the whole."""
    period = sum(step.period_s for step in profile.steps)
    sums = {part: sum(step.parts_s[part] for step in profile.steps) for part in PARTS}
    rows = [
        (_TITLES[part], total / len(profile.steps), total / period)
        for part, total in sums.items()
        if total > 0
    ]
    return [*sorted(rows, key=lambda row: -row[1]), ("step", period / len(profile.steps), 1.0)]
