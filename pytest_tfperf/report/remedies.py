"""What remedies gave, as text that every report shows: rows, the code to type, and remarks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypedDict

from pytest_tfperf.quantities import RATIO, SECONDS, digits, format_quantity
from pytest_tfperf.results import Check
from pytest_tfperf.runs import ProfiledTest
from pytest_tfperf.text import aligned
from pytest_tfperf.values import REMEDIES, Column, Table


class RemedyRecord(TypedDict):
    """One remedy that was tried: of `Remedies.records()`, and a row of its table in a run file."""

    remedy: str
    """The change."""
    speedup: float | None
    """Time of an unchanged step divided by that with the remedy, None if not measured."""
    low: float | None
    """Lower end of the 99 % interval of `speedup`, None if there were too few turns for one."""
    high: float | None
    """Its upper end."""
    step_time: float | None
    """Seconds of a step, None if not measured."""
    input_share: float | None
    """Share of a step that waits for data, 0 to 1; None without data, or where devices may work."""
    outputs: str
    """
    `same` bit for bit, `within tolerance` of the dtype, or `random` as without the remedy.

    Else `–` if they were not compared, or how they differ in words.
    """
    dropped: str
    """Work of Python in each unchanged step that the remedy leaves out, empty without any."""
    is_bound: bool
    """True if nobody can type it: it tells what remedies of its kind give at most."""
    write: str
    """The code to type, with the user's line where it is known; empty if there is none."""
    why: str
    """Why it was not tried or measured, empty if it was."""


COLUMNS = (
    Column("remedy", "remedy"),
    Column("speedup", "times as fast"),
    Column("low", "from"),
    Column("high", "to"),
    Column("step_time", "step", SECONDS),
    Column("input_share", "waits for input", RATIO),
    Column("outputs", "outputs"),
    Column("dropped", "leaves out"),
    Column("is_bound", "bound only"),
    Column("write", "write"),
    Column("why", "not tried"),
)
"""Columns of the table, in the order of the fields of a record."""
TITLES = ("faster", "step", "input", "outputs", "remedy")
HERE = "tried here, "
"""Start of the first line about remedies below the message of a check."""
SAME, WITHIN, RANDOM, UNCOMPARED = "same", "within tolerance", "random", "–"
"""Outputs bit for bit, but for rounding, that differ without a change too, or unknown."""
_WORTH, _REACH = 1.05, 1.2
"""Speed-up, and upper end of an interval, from which one that holds 1x leaves a question."""
Tried = Mapping[str, Any]
"""A record, also of a run file of another version."""
_UNKNOWN = dict.fromkeys(("speedup", "low", "high", "step_time", "input_share", "is_bound"))
"""Cells that a run file of another version may lack."""


def is_fair(outputs: str, is_bound: bool, dropped: str) -> bool:
    """Return whether a remedy can be typed, keeps the outputs, and leaves no work of Python out."""
    return outputs in (SAME, WITHIN, RANDOM) and not is_bound and not dropped


def measured(table: Table) -> list[Tried]:
    """Return the remedies that took turns, the fastest first."""
    return [one for one in _records(table) if one["speedup"] is not None]


def _records(table: Table) -> list[Tried]:
    return [{**_UNKNOWN, **record} for record in table.records()]


def cells(one: Tried) -> tuple[str, str, str, str, str]:
    """Return the cells of a remedy below `TITLES`."""
    share, step_s, outputs = one["input_share"], one["step_time"], one["outputs"]
    return (
        faster(one),
        "" if step_s is None else format_quantity(step_s, SECONDS),
        "" if share is None else format_quantity(share, RATIO),
        outputs if outputs in (SAME, WITHIN, RANDOM, UNCOMPARED) else "different",
        f"(bound: {one['remedy']})" if one["is_bound"] else one["remedy"],
    )


def faster(one: Tried) -> str:
    """Write how many times as fast a remedy is: `3.2x (3–3.4)`."""
    low, high = one["low"], one["high"]
    bounds = "" if low is None or high is None else f" ({digits(low)}–{digits(high)})"
    return f"{digits(one['speedup'])}x{bounds}"


def lines_of(table: Table) -> list[str]:
    """Return the table, the code to type, and the remarks as lines."""
    found = measured(table)
    rows = aligned([TITLES, *map(cells, found)]) if found else ()
    return [*(f"  {row}" for row in rows), conclusion(table), *remarks(table)]


def best_of(table: Table) -> Tried | None:
    """Return the fastest remedy that is fair and faster for sure, None if none is."""
    return next((one for one in _fair(table) if (one["low"] or 0.0) > 1), None)


def _fair(table: Table) -> list[Tried]:
    return [
        one for one in measured(table) if is_fair(one["outputs"], one["is_bound"], one["dropped"])
    ]


def conclusion(table: Table) -> str:
    """Return the code to type, or what is known if nothing is faster for sure."""
    own = _fair(table)
    if best := best_of(table):
        return f"write: {best['write']}"
    if not own:
        return "  nothing was measured that can be typed, keeps the outputs and does the same work"
    is_any = any((one["low"] or 0.0) > 1 and not one["is_bound"] for one in measured(table))
    fair = " that keeps the outputs and does the same work" if is_any else ""
    unclear = [one for one in own if _may_help(one)]
    if unclear:
        name, high = unclear[0]["remedy"], unclear[0]["high"]
        reach = "has no interval" if high is None else f"may be {digits(high)}x as fast"
        again = "try again while nothing else runs, or with a larger tfperf_try_seconds"
        return f"  none{fair} is known to be faster: {name} {reach}; {again}"
    return f"  nothing{fair or ' that was tried'} helps"


def _may_help(one: Tried) -> bool:
    """Return whether the interval of a remedy that is not known to be faster leaves a question."""
    high = one["high"]
    return high is None or (high > 1 and (one["speedup"] > _WORTH or high > _REACH))


def remarks(table: Table) -> list[str]:
    """Return what differs with a remedy, and why others were not tried."""
    found = measured(table)
    different = [one for one in found if cells(one)[3] == "different"]
    reasons: dict[str, list[str]] = {}
    for one in _records(table):
        reasons.setdefault(one["why"], []).append(one["remedy"])
    return [
        *(f"  outputs of {one['remedy']} differ: {one['outputs']}" for one in different),
        *(
            f"  {one['remedy']} leaves out what Python does in each step: {one['dropped']}"
            for one in found
            if one["dropped"]
        ),
        *(f"  {'; '.join(names)}: {why}" for why, names in reasons.items() if why),
    ]


def tables(test: ProfiledTest) -> Iterator[tuple[str, Table]]:
    """Yield the remedies of each profile of a test that has any, with its name."""
    for profile in test.profiles:
        if table := profile.tables.get(REMEDIES):
            yield profile.name, table


def without_remedies(check: Check) -> Check:
    """Return a check whose message leaves remedies out, for reports that show their table."""
    texts = [text for _, text in check.advice]
    place = next((n for n, text in enumerate(texts) if text.startswith(HERE)), len(texts))
    return replace(check, advice=check.advice[:place])
