"""
Rows of runs in a history, one for each metric of each profile, and what its stores take and give.

A row has what the run file holds and nothing else: no environment variable, no user, no host name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from typing import Any, Protocol

from pytest_tfperf.baseline.record import ENDED
from pytest_tfperf.baseline.step_time import why_not_recorded
from pytest_tfperf.baseline.store import entry_key, is_step_time, machine_slug
from pytest_tfperf.errors import TfperfError
from pytest_tfperf.json_file import plain_strings
from pytest_tfperf.quantities import SECONDS, format_quantity
from pytest_tfperf.results import Profile, worst_first
from pytest_tfperf.runs import ProfiledTest, Run

ROW_FORMAT = 1
"""Version of the rows; stores name it, so that an older version refuses newer rows unread."""
FIRST_RUN = "the first run of pytest --tfperf-history makes it"
"""End of the message on a store that is missing."""
_COMMIT = re.compile(r"[0-9a-f]{4,64}\+?")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """One metric of one profile in one run."""

    project: str
    machine_class: str
    """Name of the machine class, as the file of a baseline has it."""
    run: str
    """Id of the run: the hash of its content."""
    created: datetime
    """End of the run, in UTC, without a time zone."""
    commit: str
    """Git commit, with + if the work tree differs from it; empty outside git."""
    branch: str
    """Git branch; empty if it is not known."""
    file: str
    """Test file, relative to the rootdir."""
    test: str
    """Name of the test in its file."""
    profile: str
    """Name of the profile in its test; empty for the only one."""
    metric: str
    scope: str
    """Scope of the metric: `program`, `platform` or `machine`."""
    unit: str
    value: float | None
    """None if it is unknown."""
    why: str
    """
    Reason why the value is unknown, or else why later runs are not compared with it; else empty.
    """
    verdict: str
    """Worst verdict on the metric; empty if nothing checked it."""
    ratio: float | None
    """Value ÷ the one it was compared with."""
    ratio_low: float | None
    ratio_high: float | None
    """Bounds of its interval."""
    outcome: str
    usable: bool
    """True if later runs may be compared with the value."""
    workload: str
    """Of the profile, as JSON."""
    machine: str
    """The machine class, as JSON."""
    platform: str
    """Platform for which the structure is valid."""
    setting: str
    """Versions and flags, as JSON."""

    @property
    def point(self) -> tuple[str, str, str, str]:
        """File, test, profile and machine class, which tell series of values apart."""
        return self.file, self.test, self.profile, self.machine_class


ROW_COLUMNS = tuple(item.name for item in fields(MetricRow))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRows:
    """A run as a history stores it: its file, and its rows by machine class."""

    run: str
    project: str
    created: datetime
    """End of the run, in UTC, without a time zone."""
    commit: str
    text: str
    """Content of the run file."""
    rows: Mapping[str, tuple[MetricRow, ...]]
    left_out: Mapping[str, str]
    """Profiles that later runs are not compared with, and the reason of each."""

    @property
    def month(self) -> str:
        """Month of the run, as in 2026-11."""
        return f"{self.created:%Y-%m}"

    @property
    def name(self) -> str:
        """Name of the run's objects: time, commit and id."""
        return f"{time_in_name(self.created)}-{self.commit or 'none'}-{self.run}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Rows that are asked for; what is empty or None selects all."""

    project: str = ""
    machine_class: str = ""
    file: str = ""
    metrics: tuple[str, ...] = ()
    scope: str = ""
    branch: str = ""
    since: datetime | None = None
    """Earliest end of a run."""
    usable: bool = False
    """True for rows that later runs may be compared with; each has a value."""
    columns: tuple[str, ...] = ROW_COLUMNS
    """Columns that are needed, with the time and the run; a store may leave the others empty."""

    @property
    def conditions(self) -> tuple[tuple[str, str, Any], ...]:
        """Column, operator and value of each condition; `IN` has a list of values."""
        equal = ("project", "machine_class", "file", "scope", "branch")
        found: list[tuple[str, str, Any]] = [
            (name, "=", getattr(self, name)) for name in equal if getattr(self, name)
        ]
        if self.metrics:
            found.append(("metric", "IN", list(self.metrics)))
        if self.since is not None:
            found.append(("created", ">=", self.since))
        if self.usable:
            found += [("usable", "=", True), ("value", "IS DISTINCT FROM", None)]
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Result of a query in SQL."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


class HistoryStore(Protocol):
    """A store of runs, which grows until it is pruned; what cannot be done raises StoreError."""

    name: str
    """Name of the store in messages: "history" and its address, without a password."""
    unread: Sequence[str]
    """A sentence for each damaged object that the last query left out."""

    def refuse_missing(self) -> None:
        """Raise StoreError if the store was not made, which its first run does."""

    def append(self, run: RunRows) -> bool:
        """Store a run and return True, or False if it is there; readers see no part of it."""

    def rows(self, selection: Selection) -> list[MetricRow]:
        """Return the rows of a selection, the latest run last."""

    def sql(self, query: str, project: str) -> Answer:
        """Answer one SELECT on the table `runs` of a project, or of all if it is empty."""

    def prune(self, project: str, before: datetime, dry: bool) -> int:
        """Remove runs that ended before a time in UTC, unless `dry`, and return their number."""


def rows_of(run: Run, project: str) -> RunRows:
    """Return the rows of a run, or raise TfperfError if its date cannot be read."""
    content = plain_strings(run.to_json())
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    run_id = hashlib.sha256(text.encode()).hexdigest()[:16]
    created, commit = utc_time(run.created), run.commit
    commit = commit if _COMMIT.fullmatch(commit) else ""
    shared = {"project": project, "run": run_id, "created": created, "commit": commit}
    plain = Run.from_json(content, "the run")
    shared["branch"] = plain.branch
    by_class: dict[str, list[MetricRow]] = {}
    left_out: dict[str, str] = {}
    for test in plain.tests:
        for profile in test.profiles:
            why_not = _why_not_usable(test, profile, commit)
            if why_not is not None:
                left_out[entry_key(test.key, profile.name)] = why_not
            for row in _rows_of_profile(test, profile, shared, why_not):
                by_class.setdefault(row.machine_class, []).append(row)
    return RunRows(
        run=run_id,
        project=project,
        created=created,
        commit=commit,
        text=text,
        rows={name: tuple(rows) for name, rows in by_class.items()},
        left_out=left_out,
    )


def utc_time(text: str) -> datetime:
    """Return an ISO 8601 time in UTC, without a time zone; a time without one is in UTC."""
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
        if found.tzinfo is not None:
            found = found.astimezone(timezone.utc)
        return found.replace(tzinfo=None)
    except (ValueError, OverflowError) as error:
        raise TfperfError(f"{text[:40]!r} is no date, such as 2026-11-24") from error


def time_in_name(time: datetime) -> str:
    """Return a time as names of objects have it, in the order of time."""
    return time.isoformat(timespec="microseconds").replace(":", "")


def _rows_of_profile(
    test: ProfiledTest, profile: Profile, shared: Mapping[str, Any], why_not: str | None
) -> Iterator[MetricRow]:
    """Yield the rows of a profile, which later runs are not compared with if there is a reason."""
    machine = test.environment.get("machine", {})
    of_profile = {
        **shared,
        "machine_class": machine_slug(machine),
        "file": test.file,
        "test": test.key,
        "profile": profile.name,
        "outcome": test.outcome,
        "usable": why_not is None,
        "workload": json.dumps(profile.workload, sort_keys=True),
        "machine": json.dumps(machine, sort_keys=True),
        "platform": str(test.environment.get("platform", "")),
        "setting": json.dumps(test.environment.get("setting", {}), sort_keys=True),
    }
    checks = worst_first([check for check in test.checks if check.profile == profile.name])
    registry = profile.registry
    for name, value in profile.metrics.items():
        found = next((check for check in checks if check.metric == name), None)
        compared = {} if found is None else found.detail
        yield MetricRow(
            **of_profile,
            metric=name,
            scope=registry[name].scope if name in registry else "",
            unit=value.unit,
            value=value.number,
            why=value.why or why_not or "",
            verdict="" if found is None else found.verdict.value,
            ratio=None if found is None else found.ratio,
            ratio_low=compared.get("low"),
            ratio_high=compared.get("high"),
        )


def _why_not_usable(test: ProfiledTest, profile: Profile, commit: str) -> str | None:
    """Return why later runs are not compared with a profile, or None."""
    if test.outcome != "passed":
        return f"the test {ENDED.get(test.outcome, test.outcome)}"
    if not commit or commit.endswith("+"):
        return "the work tree is not that of a commit"
    if profile.ended is not None:
        return profile.ended
    if "step_time" not in profile.metrics:
        return "it has no step time"
    step_time = profile.value("step_time")
    if step_time.number is None:
        return f"step_time is unknown: {step_time.why}"
    if not is_step_time(step_time.number):
        return f"no step lasts {format_quantity(step_time.number, SECONDS)}"
    return why_not_recorded(profile, test.shared_cpu)
