"""Comparison of two traces, as text and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pytest_tfperf.analysis.multi_host import profiles_of_job
from pytest_tfperf.analysis.xla.hlo_diff import hlo_diff
from pytest_tfperf.analysis.xla.programs import Program, programs_of_run
from pytest_tfperf.errors import TraceError
from pytest_tfperf.metrics import format_quantity
from pytest_tfperf.report.profile_text import number_table, render_table, titled_steps
from pytest_tfperf.report.text_layout import BOUNDLESS
from pytest_tfperf.results import FORMAT, Profile
from pytest_tfperf.trace.logdir import find_traces
from pytest_tfperf.values import Json, Table


def compared_json(before: ComparedTrace, after: ComparedTrace) -> Json:
    """Return the comparison as JSON: names, `metrics`, `hlo` as `{key: table}`, and `notes`."""
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
    """Return `{name: {"unit", "before", "after", "ratio"}}` of metrics known in one or both."""
    return {
        name: {
            "unit": old.metrics[name].unit,
            "before": pair[0],
            "after": pair[1],
            "ratio": _ratio(pair),
        }
        for name, pair in _pairs(old, new).items()
    }


def render_compared(
    before: ComparedTrace, after: ComparedTrace, verbose: bool, width: int = BOUNDLESS
) -> str:
    """
    Render the comparison: metrics known in one or both traces, and what differs in the HLO.

    Args:
        before: The first trace.
        after: The second trace.
        verbose: Whether to show all rows of tables.
        width: Columns of the terminal.
    """
    units = {name: value.unit for name, value in before.profile.metrics.items()}
    rows = []
    for name, pair in _pairs(before.profile, after.profile).items():
        shown = ("" if one is None else format_quantity(one, units[name]) for one in pair)
        rows.append((name, *shown, _times(pair)))
    lines = [
        f"before: {titled_steps(before.profile)}",
        f"after: {titled_steps(after.profile)}",
        *(f"note: {note}" for note in _notes(before, after)),
        "",
        number_table(["metric", "before", "after", "ratio"], rows),
    ]
    for table in _tables(before, after).values():
        text = render_table(table, verbose, width) if table.rows else [f"{table.title}: none"]
        lines += ["", *text]
    return "\n".join(lines)


Pair = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class ComparedTrace:
    """One argument of `tfperf compare`."""

    profile: Profile
    """Profile of the trace."""
    programs: tuple[Program, ...] = ()
    """XLA executables that its steps ran."""
    why: str = ""
    """Reason why there are no executables."""
    n_hosts: int = 1
    """Hosts of the run, of which the profile is the first."""


def read_compared_trace(path: Path) -> ComparedTrace:
    """
    Read a trace, or that of the first host in the newest run of a logdir.

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
        return ComparedTrace(profiles[0], why=str(error), n_hosts=len(profiles))
    why = "" if programs else f"the steps of {profiles[0].name} ran no XLA executable"
    return ComparedTrace(profiles[0], programs, why, len(profiles))


def _tables(before: ComparedTrace, after: ComparedTrace) -> Mapping[str, Table]:
    return hlo_diff(before.programs, after.programs) if before.programs and after.programs else {}


def _notes(before: ComparedTrace, after: ComparedTrace) -> list[str]:
    both = (before, after)
    notes = [
        f"{one.profile.name} is the first of {one.n_hosts} hosts" for one in both if one.n_hosts > 1
    ]
    return notes + [f"the HLO is not compared: {one.why}" for one in both if one.why]


def _pairs(old: Profile, new: Profile) -> dict[str, Pair]:
    """Return the numbers of each metric that at least one trace has."""
    pairs = {
        name: (value.number, new.metrics[name].number)
        for name, value in old.metrics.items()
        if name in new.metrics
    }
    return {name: pair for name, pair in pairs.items() if pair != (None, None)}


def _ratio(pair: Pair) -> float | None:
    """Return after ÷ before."""
    old, new = pair
    return new / old if old and new is not None else None


def _times(pair: Pair) -> str:
    ratio = _ratio(pair)
    return "" if ratio is None else f"{ratio:.3g}" if ratio < 1000 else f"{ratio:.0f}"
