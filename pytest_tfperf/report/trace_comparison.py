"""Two traces side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tabulate import tabulate

from pytest_tfperf.analysis.multi_host import profiles_of_job
from pytest_tfperf.analysis.xla.hlo_diff import hlo_diff
from pytest_tfperf.analysis.xla.programs import Program, programs_of_run
from pytest_tfperf.errors import TraceError
from pytest_tfperf.metrics import format_quantity
from pytest_tfperf.report.profile_text import render_table, said_steps
from pytest_tfperf.report.text_layout import BOUNDLESS
from pytest_tfperf.results import FORMAT, Profile
from pytest_tfperf.trace.logdir import find_traces
from pytest_tfperf.values import Json, Table


def compared_json(before: Side, after: Side) -> Json:
    """`{"format", "before", "after", "metrics": {name: {"unit", "before", "after", "ratio"}}, "hlo": {key: table}, "notes"}`."""
    old, new = before.profile, after.profile
    metrics = compared_metrics(old, new)
    tables = {key: asdict(table) for key, table in _tables(before, after).items()}
    return {
        "format": FORMAT,
        "before": old.name,
        "after": new.name,
        "metrics": metrics,
        "hlo": tables,
        "notes": _notes(before, after),
    }


def compared_metrics(old: Profile, new: Profile) -> Json:
    """`{name: {"unit", "before", "after", "ratio"}}` of the metrics that are known of one or both."""
    return {
        name: {
            "unit": old.metrics[name].unit,
            "before": pair[0],
            "after": pair[1],
            "ratio": _ratio(pair),
        }
        for name, pair in _pairs(old, new).items()
    }


def render_compared(before: Side, after: Side, verbose: bool, width: int = BOUNDLESS) -> str:
    """Return the metrics that are known of one or both, and what differs in the HLO, in tables that wide; with `verbose` more rows of it."""
    units = {name: value.unit for name, value in before.profile.metrics.items()}
    rows = [
        (
            name,
            *("" if number is None else format_quantity(number, units[name]) for number in pair),
            _times(pair),
        )
        for name, pair in _pairs(before.profile, after.profile).items()
    ]
    sides = [
        f"{title}: {said_steps(side.profile)}"
        for title, side in (("before", before), ("after", after))
    ]
    table = tabulate(
        rows,
        ["metric", "before", "after", "ratio"],
        "simple",
        disable_numparse=True,
        colalign=("left", "right", "right", "right"),
    )
    lines = [*sides, *(f"note: {note}" for note in _notes(before, after)), "", table]
    for found in _tables(before, after).values():
        lines += [
            "",
            *(render_table(found, verbose, width) if found.rows else [f"{found.title}: none"]),
        ]
    return "\n".join(lines)


Pair = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Side:
    """What one argument of `tfperf compare` holds: a profile, and the executables that its steps ran or `why` there are none."""

    profile: Profile
    programs: tuple[Program, ...] = ()
    why: str = ""
    n_hosts: int = 1


def read_side(path: Path) -> Side:
    """
    Return a trace, or of the newest run in a logdir the first host's.

    Raises:
        TraceError: If it cannot be read or has no step.
    """
    traces = find_traces(path)
    profiles, errors = profiles_of_job(traces)
    if errors:
        raise errors[0]
    try:
        programs = tuple(program for program in programs_of_run(traces) if program.runs is not None)
    except TraceError as error:
        return Side(profiles[0], why=str(error), n_hosts=len(profiles))
    return Side(
        profiles[0],
        programs,
        "" if programs else f"the steps of {profiles[0].name} ran no XLA executable",
        len(profiles),
    )


def _tables(before: Side, after: Side) -> Mapping[str, Table]:
    return hlo_diff(before.programs, after.programs) if before.programs and after.programs else {}


def _notes(before: Side, after: Side) -> list[str]:
    sides = (before, after)
    hosts = [
        f"{side.profile.name} is the first of {side.n_hosts} hosts"
        for side in sides
        if side.n_hosts > 1
    ]
    return [*hosts, *(f"the HLO is not compared: {side.why}" for side in sides if side.why)]


def _pairs(old: Profile, new: Profile) -> dict[str, Pair]:
    """Return the numbers of each metric that at least one side knows."""
    pairs = {
        name: (value.number, new.metrics[name].number)
        for name, value in old.metrics.items()
        if name in new.metrics
    }
    return {name: pair for name, pair in pairs.items() if pair != (None, None)}


def _ratio(pair: Pair) -> float | None:
    """After ÷ before."""
    old, new = pair
    return new / old if old and new is not None else None


def _times(pair: Pair) -> str:
    ratio = _ratio(pair)
    return "" if ratio is None else f"{ratio:.3g}" if ratio < 1000 else f"{ratio:.0f}"
