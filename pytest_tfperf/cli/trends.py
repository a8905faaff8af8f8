"""
The series of a history as `tfperf history` shows them: changes of level, runs that count, tables.

They are apart from the command since they need NumPy, which its help does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pytest_tfperf.baseline.level_changes import LevelChanges, looked_at
from pytest_tfperf.cli.terminal import Line, laid_out, line, width
from pytest_tfperf.metric_registry import shown_unit
from pytest_tfperf.quantities import format_quantity
from pytest_tfperf.report.run_text import sparkline
from pytest_tfperf.report.text_table import TextTable
from pytest_tfperf.results import Verdict
from pytest_tfperf.stats.change_points import FEWEST, FEWEST_AT_A_LEVEL
from pytest_tfperf.stores.rows import MetricRow
from pytest_tfperf.text import one_line, plain, plural
from pytest_tfperf.values import Json

_SHOWN = 20
COLUMNS = (
    *("machine_class", "run", "created", "commit", "branch", "file", "test", "profile"),
    *("metric", "unit", "value", "why", "verdict", "usable", "workload"),
)
"""What trends need of a row."""


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
    """Return why runs of a branch are not compared with a known value; empty if they are."""
    if row.branch != branch:
        return f"not on branch {branch}"
    return "" if row.usable else row.why or "its row has no reason"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesTrend:
    """A series, its changes of level, and the runs that later runs are compared with."""

    series: Series
    """The series."""
    changes: LevelChanges
    """Its changes of level, whether the runs count or not."""
    branch: str
    """The branch whose runs count."""

    @property
    def unit(self) -> str:
        """Unit of the values."""
        return self.series.rows[-1].unit

    def text(self, value: float) -> str:
        """Return a value with its unit."""
        return format_quantity(value, shown_unit(self.series.rows[-1].metric, self.unit))

    @property
    def facts(self) -> str:
        """File, machine class and branch."""
        last = self.series.rows[-1]
        branch = f"branch {last.branch}" if last.branch else "without a branch"
        return f"{last.file}; machine class {last.machine_class}; {branch}"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons why runs do not count; empty for each run that does."""
        return tuple(why_not_counted(row, self.branch) for row in self.series.rows)

    def sentences(self) -> Iterator[str]:
        """Yield sentences on changes of level, on regressions, and on runs that do not count."""
        n_runs = len(self.series.rows)
        if self._has_one_level:
            yield (
                f"No change of level in {looked_at(n_runs)}: a change has at least "
                f"{FEWEST_AT_A_LEVEL} runs after it, and a small one more."
            )
        else:
            yield from self.changes.sentences
        n_slower = sum(row.verdict == Verdict.REGRESSION.value for row in self.series.rows)
        if n_slower:
            have, their = ("has", "its") if n_slower == 1 else ("have", "their")
            yield (
                f"{plural(n_slower, 'run')} {have} the verdict {Verdict.REGRESSION.value} against "
                f"{their} reference."
            )
        n_left_out = sum(map(bool, self.reasons))
        if n_left_out:
            do, them = ("does", "it") if n_left_out == 1 else ("do", "them")
            yield (
                f"{n_left_out} of {plural(n_runs, 'run')} {do} not count: no later run is compared "
                f"with {them}."
            )
            if n_runs >= FEWEST:
                yield "Changes of level are those of all runs."

    def to_json(self) -> Json:
        """Return plain JSON values."""
        rows = self.series.rows
        return {
            "file": rows[-1].file,
            "test": rows[-1].test,
            "profile": rows[-1].profile,
            "machine_class": rows[-1].machine_class,
            "unit": self.unit,
            "values": list(self.series.values),
            "commits": list(self.series.commits),
            "created": [row.created.isoformat() for row in rows],
            "verdicts": [row.verdict for row in rows],
            "counts": [not why for why in self.reasons],
            "why_not": list(self.reasons),
            "changes": list(self.changes.sentences) if self.changes.points else [],
        }

    @property
    def _has_one_level(self) -> bool:
        """True if changes were looked for, and none was found."""
        values = self.series.values
        return not self.changes.points and len(values) >= FEWEST and min(values) > 0


def cell(text: str) -> str:
    """Return a text that others wrote as a cell of a table, which controls no terminal."""
    return plain(one_line(text))


def overview(trends: Sequence[SeriesTrend]) -> Iterator[str | Line]:
    """Lay out a line for each series."""
    rows = [
        [
            cell(one.series.name),
            cell(one.series.rows[-1].machine_class),
            str(len(one.series.rows)),
            cell(one.text(one.series.values[-1])),
            sparkline(one.series.values),
            cell(one.changes.texts[-1]) if one.changes.texts else "",
        ]
        for one in trends
    ]
    titles = ["test", "machine class", "runs", "latest", "history", "last change of level"]
    yield from laid_out(TextTable(titles, rows, [False, False, True, True, False, False]), width())


def table_of_runs(trend: SeriesTrend, every: bool) -> Iterator[str | Line]:
    """Lay out the runs of a series, the latest last, below what is said of all of them."""
    yield line((f"{cell(trend.series.name)}: {cell(trend.facts)}", "bold"))
    for sentence in trend.sentences():
        yield cell(sentence)
    rows = trend.series.rows
    first = 0 if every else max(len(rows) - _SHOWN, 0)
    cells = [
        [
            f"{row.created:%Y-%m-%d %H:%M}",
            cell(row.commit),
            cell(trend.text(row.value or 0.0)),
            cell(row.verdict),
            # what follows is further reasons or advice
            f"no: {cell(why.partition('; ')[0])}" if why else "yes",
        ]
        for row, why in zip(rows[first:], trend.reasons[first:], strict=True)
    ]
    titles = ["end of run (UTC)", "commit", cell(rows[-1].metric), "verdict", "counts"]
    yield from laid_out(TextTable(titles, cells, [False, False, True, False, False]), width())
    if first:
        yield line((f"and {first} before them (-v shows all)", "dim"))
