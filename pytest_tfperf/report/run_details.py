"""
What the mappings and tables of a run file hold, and the check that they do.

They may hold more: analyses add details, and a run file may come from another version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import GenericAlias
from typing import Any, Literal, TypedDict, get_type_hints

import msgspec

from pytest_tfperf.report.remedies import RemedyRecord
from pytest_tfperf.results import Profile
from pytest_tfperf.runs import ProfiledTest, Run
from pytest_tfperf.values import REMEDIES, Number, Seconds, Table, Workload

_Try = TypedDict("_Try", {"try": str}, total=False)  # a keyword, which a class cannot name


class Detail(_Try, total=False):
    """
    Facts of a value.

    `low` and `high` are over the steps where they differ. `where` says where the time went, `try`
    what to do, `inside` and `outside` have the compute ops of xla_coverage by type, `counted_by`
    the parts of a count by function, op type or package.
    """

    low: float
    high: float
    n_steps: float
    n_epoch_ends: float
    n_dropped: float
    n_devices: float
    where: str
    bounds: str
    corrected: str
    tpu: str
    padding: str
    interference: list[str]
    notes: list[str]
    turns_with: list[str]
    inside: dict[str, float]
    outside: dict[str, float]
    counted_by: dict[str, float]


class Difference(TypedDict):
    """What differs between two traces, and the seconds that it adds to a step."""

    what: str
    seconds: float | None


class _Turns(TypedDict):
    n: Number


class ProcessPair(_Turns, total=False):
    """A pair of processes of a paired run: its ratio and the number of its turns."""

    ratio: float | None


class Comparison(TypedDict, total=False):
    """
    The figures of a limit or a comparison, in the metric's unit.

    `bound` and `relation` are those of a limit. `gates` is false if a change is shown and fails
    nothing. `ratio` is after ÷ before, `low` and `high` its interval, `smallest` the slow-down that
    would have been found in 9 of 10 cases. `why` is the reason for which a value is unknown, or a
    time not decided. `runs` are the recorded times, each with its commit in
    `commits`, and `anchor` the frozen one. `second` is the time in a second, fresh process. `turns`
    are seconds of a step after and before, `parts_before` those of its parts.
    """

    bound: float
    relation: Literal["max", "min", "equal"]
    gates: bool
    before: float | None
    after: float | None
    ratio: float | None
    low: float | None
    high: float | None
    confidence: float | None
    smallest: float | None
    why: str
    second: float
    runs: list[float]
    anchor: float | None
    turns: list[tuple[float, float]]
    differences: list[Difference]
    tolerance: float | None
    commits: list[str]
    parts_before: dict[str, Seconds]
    process_pairs: list[ProcessPair]


class PackageVersions(TypedDict):
    """Versions of a package in both environments, null where one has none."""

    before: str | None
    after: str | None


class OtherPython(TypedDict):
    """The other environment of `--tfperf-against-python`: its name, its Python, what differs."""

    name: str
    python: str
    packages: dict[str, PackageVersions]


class Environment(TypedDict, total=False):
    """
    Where a test ran; empty where nothing was profiled.

    `platform` is the class that platform metrics hold for, and `machine` has the fields of the
    class that times hold for. `setting` has versions, precision and flags.
    """

    platform: str
    machine: dict[str, Any]
    setting: dict[str, str]
    against: OtherPython


def _columns(texts: str = "", numbers: str = "", maybe_texts: str = "", maybe: str = "") -> _Kinds:
    """Return the kinds of columns by name: texts and numbers, and those that may lack either."""
    kinds: dict[Any, str] = {list[str]: texts, list[float]: numbers}
    kinds |= {list[str | None]: maybe_texts, list[float | None]: maybe}
    return {name: kind for kind, names in kinds.items() for name in names.split()}


_Kinds = Mapping[str, Any]
_OPS = _columns("where op type", "occurrences self_s", maybe="share")
_DEVICES = _columns(
    maybe_texts="device",
    maybe="collective waiting device_compute output device_to_device input idle",
)
_COLUMNS: Mapping[str, _Kinds] = {
    "host_ops": _OPS,
    "device_ops": _OPS,
    "python_calls": _columns("function", "calls", maybe="self_s"),
    "pipeline": _columns("stage"),
    "stages": _columns("stage name", "calls self_s blocking_s", maybe="parallelism buffer_limit"),
    "executables": _columns("executable", "runs ops fusions", "hlo"),
    "op_work": _columns("type key place dtype", "ops flops"),
    "graph": _columns("type", "after"),
    "outside_xla": _columns("type why"),
    "median_step": _columns("lane part", "start_s length_s", "name"),
    "device_parts": _DEVICES,
    "job_device_parts": _DEVICES,
    "padding": _columns("array", "bytes padded_bytes"),
    "roofline": _columns(
        "op",
        maybe_texts="bound_by",
        maybe="self_s flop_rate bandwidth flop_per_byte share_of_the_roof",
    ),
    REMEDIES: {
        name: GenericAlias(list, (kind,)) for name, kind in get_type_hints(RemedyRecord).items()
    },
    "memory_over_step": _columns(numbers="into_step_s", maybe="held"),
}
"""Columns that comparisons and pages read; those that may be empty may be missing too."""


def with_checked_details(run: Run) -> Run:
    """
    Return a run without tables of other versions, which lack columns that are read.

    Details that do not hold what they should raise msgspec.ValidationError with the place.
    """
    return replace(
        run, tests=tuple(_test(test, f"$.tests[{n}]") for n, test in enumerate(run.tests))
    )


def _test(test: ProfiledTest, place: str) -> ProfiledTest:
    _check(test.environment, Environment, f"{place}.environment")
    for n, check in enumerate(test.checks):
        _check(check.detail, Comparison, f"{place}.checks[{n}].detail")
    profiles = [
        _profile(profile, f"{place}.profiles[{n}]") for n, profile in enumerate(test.profiles)
    ]
    return replace(test, profiles=tuple(profiles))


def _profile(profile: Profile, place: str) -> Profile:
    for name, value in profile.metrics.items():
        at = f"{place}.metrics[{name}]"
        if {value.number is None, value.source is None, value.why is not None} == {False, True}:
            raise msgspec.ValidationError(f"Expected a number with `source`, or `why` - at `{at}`")
        _check(value.detail, Detail, f"{at}.detail")
    _check(profile.workload, Workload, f"{place}.workload")
    tables = {
        key: table
        for key, table in profile.tables.items()
        if _is_readable(table, _COLUMNS.get(key, {}), f"{place}.tables[{key}]")
    }
    return replace(profile, tables=tables)


def _is_readable(table: Table, wanted: Mapping[str, Any], place: str) -> bool:
    if any(len(row) != len(table.columns) for row in table.rows):
        raise msgspec.ValidationError(f"Expected one cell for each column - at `{place}.rows`")
    titles = {column.key for column in table.columns}
    if any(kind in (list[str], list[float]) and key not in titles for key, kind in wanted.items()):
        return False
    for n, column in enumerate(table.columns):
        kind = wanted.get(column.key, list[float | None] if column.unit else list[Any])
        _check([row[n] for row in table.rows], kind, f"{place}.columns[{column.key}]")
    return True


def _check(data: Any, kind: Any, place: str) -> None:
    try:
        msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(str(error).replace("`$", f"`{place}", 1)) from error
