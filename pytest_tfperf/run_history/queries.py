"""Series of values in a history, and the runs that a step time is compared with."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_tfperf.baseline.history import merge_runs, rounded
from pytest_tfperf.baseline.record import ENDED
from pytest_tfperf.baseline.store import is_step_time
from pytest_tfperf.run_history.rows import MetricRow
from pytest_tfperf.values import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The values of one metric of one profile on one machine class, the latest last."""

    rows: tuple[MetricRow, ...]
    """A row of each run, all with a value."""

    @property
    def values(self) -> tuple[float, ...]:
        """The values."""
        return tuple(row.value for row in self.rows if row.value is not None)

    @property
    def commits(self) -> tuple[str, ...]:
        """The commit of each run."""
        return tuple(row.commit for row in self.rows)

    @property
    def name(self) -> str:
        """Name of the profile."""
        last = self.rows[-1]
        return f"{last.test}/{last.profile}" if last.profile else last.test


def series_of(rows: Iterable[MetricRow]) -> list[Series]:
    """
    Return the series of rows of one metric, by file, test, profile and machine class.

    Values of another workload than the latest one are left out, as are those that are unknown.
    """
    by_point: dict[tuple[str, ...], list[MetricRow]] = {}
    for row in rows:
        if row.value is not None and math.isfinite(row.value):
            by_point.setdefault((*row.point, row.metric), []).append(row)
    return [
        Series(rows=tuple(row for row in found if row.workload == found[-1].workload))
        for _, found in sorted(by_point.items())
    ]


def why_not_counted(row: MetricRow, branch: str) -> str:
    """
    Return why later runs are not compared with a row that has a value; empty if they are.

    Args:
        row: The row; those of early versions have no reason.
        branch: The branch whose runs are compared with.
    """
    if row.branch != branch:
        return f"not on branch {branch}"
    if row.usable:
        return ""
    if row.why:
        return row.why
    if row.outcome != "passed":
        return f"the test {ENDED.get(row.outcome, row.outcome)}"
    return "disturbed, incomplete, or of no commit"


def recorded_entry(
    rows: Iterable[MetricRow], workload: Mapping[str, Any], tolerance: float
) -> Json | None:
    """
    Return the entry that a timing file would have, had each of these runs been recorded in it.

    Args:
        rows: Usable rows of one profile on one machine class, the latest last.
        workload: Workload of the profile that is compared.
        tolerance: The slow-down that the test tolerates.
    """
    entry: Json | None = None
    same = json.dumps(dict(workload), sort_keys=True)
    for run in _runs([row for row in rows if row.workload == same]):
        entry = merge_runs(entry, [run], workload, tolerance).entry or entry
    return entry


def _runs(rows: Sequence[MetricRow]) -> list[Json]:
    """Return the metrics of each run that has a step time, as a timing file holds them."""
    runs: dict[str, Json] = {}
    for row in rows:
        known = {"commit": row.commit, "created": f"{row.created.isoformat()}+00:00"}
        run = runs.setdefault(row.run, known)
        if row.value is not None and math.isfinite(row.value):
            run[row.metric] = rounded(row.value)
    return [run for run in runs.values() if is_step_time(run.get("step_time", 0.0))]
