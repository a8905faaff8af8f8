"""Comparison of two traces: metrics side by side, differences of their HLO, and its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from msgspec import convert

from pytest_tfperf.differences.hlo_diff import hlo_diff
from pytest_tfperf.errors import TraceError
from pytest_tfperf.facts.executions import Program, programs_of_run
from pytest_tfperf.json_file import plain_strings
from pytest_tfperf.metrics.multi_host import analyse_job
from pytest_tfperf.metrics.timing import TRACED_NOTE
from pytest_tfperf.quantities import format_alike, format_factor, format_quantity
from pytest_tfperf.results import FORMAT, Profile
from pytest_tfperf.trace.logdir import find_traces
from pytest_tfperf.values import Json, Table, builtin


def compared_json(before: ComparedTrace, after: ComparedTrace) -> Json:
    """Return the comparison as JSON: names, `metrics`, `hlo` as `{key: table}`, and `notes`."""
    old, new = before.profile, after.profile
    metrics = compared_metrics(old, new)
    tables = {key: asdict(table) for key, table in hlo_tables(before, after).items()}
    return {
        "format": FORMAT,
        "before": old.name,
        "after": new.name,
        "metrics": metrics,
        "hlo": tables,
        "notes": comparison_notes(before, after),
    }


def compared_metrics(old: Profile, new: Profile) -> Json:
    """Return `{name: {"unit", "before", "after", "ratio"}}` of metrics known in one or both."""
    return {
        name: {
            "unit": old.metrics[name].unit,
            "before": pair[0],
            "after": pair[1],
            "ratio": ratio_of(pair),
        }
        for name, pair in metric_pairs(old, new).items()
    }


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
    analysed, errors = analyse_job(traces)
    if errors:
        raise errors[0]
    profiles = [one.with_traced_times().plain() for one in analysed]
    try:
        programs = tuple(program for program in programs_of_run(traces) if program.runs is not None)
    except TraceError as error:
        return ComparedTrace(profiles[0], why=str(error), n_hosts=len(profiles))
    why = "" if programs else f"the steps of {profiles[0].name} ran no XLA executable"
    return ComparedTrace(profiles[0], programs, why, len(profiles))


def hlo_tables(before: ComparedTrace, after: ComparedTrace) -> Mapping[str, Table]:
    """Return the differences of the HLO by key, empty where one of both has none."""
    if not before.programs or not after.programs:
        return {}
    found = hlo_diff(before.programs, after.programs)
    return convert(plain_strings(builtin(found)), dict[str, Table])


def comparison_notes(before: ComparedTrace, after: ComparedTrace) -> list[str]:
    """Return what to know of the comparison."""
    both = (before, after)
    notes = [TRACED_NOTE]
    notes += [
        f"{one.profile.name} is the first of {one.n_hosts} hosts" for one in both if one.n_hosts > 1
    ]
    whys = dict.fromkeys(one.why for one in both if one.why)
    return notes + [f"the HLO is not compared: {why}" for why in whys]


def metric_pairs(old: Profile, new: Profile) -> dict[str, Pair]:
    """Return the numbers of each metric that at least one trace has."""
    pairs = {
        name: (value.number, new.metrics[name].number)
        for name, value in old.metrics.items()
        if name in new.metrics
    }
    return {name: pair for name, pair in pairs.items() if pair != (None, None)}


def metric_rows(old: Profile, new: Profile) -> list[tuple[str, str, str, str]]:
    """Return name, value before, value after and ratio of these metrics, as texts."""
    return [
        (name, *_cells(pair, old.metrics[name].unit), _factor(pair))
        for name, pair in metric_pairs(old, new).items()
    ]


def _cells(pair: Pair, unit: str) -> tuple[str, str]:
    old, new = pair
    if old is None or new is None:
        return ("" if old is None else format_quantity(old, unit)), (
            "" if new is None else format_quantity(new, unit)
        )
    return format_alike(old, new, unit)


def _factor(pair: Pair) -> str:
    ratio = ratio_of(pair)
    return "" if ratio is None else format_factor(ratio)


def ratio_of(pair: Pair) -> float | None:
    """Return after ÷ before."""
    old, new = pair
    return new / old if old and new is not None else None
