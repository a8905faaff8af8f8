"""
The series of a history as `tfperf history` shows them: changes of level, runs that count, tables.

They are apart from the command since they need NumPy, which its help does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from pytest_tfperf.baseline.level_changes import looked_at
from pytest_tfperf.cli.terminal import Line, laid_out, line, width
from pytest_tfperf.metric_registry import shown_unit
from pytest_tfperf.quantities import format_quantity
from pytest_tfperf.report.html.charts import History
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


def why_not_counted(row: MetricRow, branch: str) -> str:
    """Return why runs of a branch are not compared with a known value; empty if they are."""
    if row.branch != branch:
        return f"not on branch {branch}"
    return "" if row.usable else row.why or "its row has no reason"


@dataclass(frozen=True, kw_only=True)
class Trend:
    """The values of one metric of one profile on one machine class, and which runs count."""

    rows: tuple[MetricRow, ...]
    """A row of each run, all with a value, the latest last."""
    branch: str
    """The branch whose runs count."""

    @cached_property
    def history(self) -> History:
        """The values, and their changes of level, whether the runs count or not."""
        last = self.rows[-1]
        return History(
            values=[row.value for row in self.rows if row.value is not None],
            commits=[row.commit for row in self.rows],
            metric=last.metric,
            unit=shown_unit(last.metric, last.unit),
            is_judged=False,
        )

    @property
    def name(self) -> str:
        """Name of the profile."""
        last = self.rows[-1]
        return f"{last.test}/{last.profile}" if last.profile else last.test

    def text(self, value: float) -> str:
        """Return a value with its unit."""
        return format_quantity(value, self.history.unit)

    @property
    def facts(self) -> str:
        """File, machine class and branch."""
        last = self.rows[-1]
        branch = f"branch {last.branch}" if last.branch else "without a branch"
        return f"{last.file}; machine class {last.machine_class}; {branch}"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons why runs do not count; empty for each run that does."""
        return tuple(why_not_counted(row, self.branch) for row in self.rows)

    def sentences(self) -> Iterator[str]:
        """Yield sentences on changes of level, on regressions, and on runs that do not count."""
        n_runs, changes = len(self.rows), self.history.changes
        if changes.is_known and not changes.points:
            yield (
                f"No change of level in {looked_at(n_runs)}: a change has at least "
                f"{FEWEST_AT_A_LEVEL} runs after it, and a small one more."
            )
        else:
            yield from changes.sentences
        n_slower = sum(row.verdict == Verdict.REGRESSION.value for row in self.rows)
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
        rows, changes = self.rows, self.history.changes
        return {
            "file": rows[-1].file,
            "test": rows[-1].test,
            "profile": rows[-1].profile,
            "machine_class": rows[-1].machine_class,
            "unit": rows[-1].unit,
            "values": list(self.history.values),
            "commits": list(self.history.commits),
            "created": [row.created.isoformat() for row in rows],
            "verdicts": [row.verdict for row in rows],
            "counts": [not why for why in self.reasons],
            "why_not": list(self.reasons),
            "changes": list(changes.sentences) if changes.points else [],
        }


def trends_of(rows: Iterable[MetricRow], branch: str) -> list[Trend]:
    """
    Return the trends of one metric, by file, test, profile and machine class.

    Values of another workload than the latest one are left out, as are those that are unknown.
    """
    by_point: dict[tuple[str, ...], list[MetricRow]] = {}
    for row in rows:
        if row.value is not None and math.isfinite(row.value):
            by_point.setdefault((*row.point, row.metric), []).append(row)
    return [
        Trend(rows=tuple(row for row in found if row.workload == found[-1].workload), branch=branch)
        for _, found in sorted(by_point.items())
    ]


def cell(text: str) -> str:
    """Return a text that others wrote as a cell of a table, which controls no terminal."""
    return plain(one_line(text))


def overview(trends: Sequence[Trend]) -> Iterator[str | Line]:
    """Lay out a line for each series."""
    rows = [
        [
            cell(one.name),
            cell(one.rows[-1].machine_class),
            str(len(one.rows)),
            cell(one.text(one.history.values[-1])),
            sparkline(one.history.values),
            cell(one.history.changes.texts[-1]) if one.history.changes.texts else "",
        ]
        for one in trends
    ]
    titles = ["test", "machine class", "runs", "latest", "history", "last change of level"]
    yield from laid_out(TextTable(titles, rows, [False, False, True, True, False, False]), width())


def table_of_runs(trend: Trend, every: bool) -> Iterator[str | Line]:
    """Lay out the runs of a series, the latest last, below what is said of all of them."""
    yield line((f"{cell(trend.name)}: {cell(trend.facts)}", "bold"))
    for sentence in trend.sentences():
        yield cell(sentence)
    rows = trend.rows
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
