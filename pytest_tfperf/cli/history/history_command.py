"""The command `tfperf history`: the runs of a team, and since which commit a step is slower."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from pytest_tfperf.cli.console import width, write_out
from pytest_tfperf.cli.history.project_settings import project_settings
from pytest_tfperf.cli.output import (
    FAILED,
    GOOD,
    add_command,
    json_text,
    meant,
    refuse,
    silence_libraries,
)
from pytest_tfperf.cli.text_tables import Cells, laid_out
from pytest_tfperf.errors import TfperfError
from pytest_tfperf.files import replace_file
from pytest_tfperf.metrics import METRICS
from pytest_tfperf.quantities import format_quantity
from pytest_tfperf.report.sparkline import levels_of, sparkline
from pytest_tfperf.text import and_more, one_line, plural

if TYPE_CHECKING:
    from pytest_tfperf.baseline.level_changes import LevelChanges
    from pytest_tfperf.run_history.queries import Series
    from pytest_tfperf.run_history.stores import HistoryStore

_PRUNE, _SHOWN, _NAMED = "prune", 20, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trend:
    """A series and its changes of level."""

    series: Series
    changes: LevelChanges

    @property
    def unit(self) -> str:
        return self.series.rows[-1].unit

    def text(self, value: float) -> str:
        return format_quantity(value, self.unit)

    @property
    def facts(self) -> str:
        last = self.series.rows[-1]
        return f"{last.file}; machine class {last.machine_class}; branch {last.branch or 'unknown'}"


def add_commands(commands: Any) -> None:
    """Add the command to the parser."""
    history = add_command(
        commands,
        "history",
        _history,
        "show the runs of a team's history, and their changes of level",
        (
            "Show the values of a metric in the runs that pytest --tfperf-history stored: a line a "
            "test, or all runs of one TEST, with the commits since which the level is another one. "
            "Or remove old runs: tfperf history prune --before DATE. Exit status 1 if nothing is "
            "stored for what was asked, 2 if the store cannot be read."
        ),
        "test_train_step --since 2026-10-01 -o trend.html",
    )
    history.add_argument(
        "test", nargs="?", metavar="TEST", help="name of a test or profile; or prune"
    )
    history.add_argument(
        "--store",
        metavar="URL",
        help="folder, URL or postgresql:// of the store (default: ini tfperf_history)",
    )
    history.add_argument(
        "--project",
        metavar="NAME",
        help="project in the store (default: ini tfperf_history_project, or the git repository)",
    )
    history.add_argument(
        "--metric", default="step_time", metavar="NAME", help="metric to show (default: step_time)"
    )
    history.add_argument("--since", metavar="DATE", help="only runs since a date: 2026-10-01")
    history.add_argument(
        "--branch",
        metavar="NAME",
        help="only runs of a branch (default: ini tfperf_history_branch, or main)",
    )
    history.add_argument("--sql", metavar="SELECT", help="answer a query on the table runs")
    history.add_argument(
        "--csv", choices=["otava"], help="write what Apache Otava reads, a column a profile"
    )
    history.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write a page with charts (.html)"
    )
    history.add_argument("--before", metavar="DATE", help="with prune: remove runs before a date")
    history.add_argument(
        "--dry-run", action="store_true", help="with prune: only say how many runs that are"
    )
    history.add_argument("-v", "--verbose", action="count", default=0, help="show all runs")
    history.add_argument("--json", action="store_true", help="print one JSON object instead")


def _history(options: argparse.Namespace, rest: Sequence[str]) -> int:
    refuse(options, rest)
    if options.output is not None and options.output.suffix.lower() != ".html":
        raise TfperfError(f"{options.output}: a page of a history ends in .html")
    silence_libraries()
    settings = project_settings()
    address = options.store or settings.history
    if not address:
        options.parser.error("no store: give --store URL, or set the ini value tfperf_history")
    from pytest_tfperf.run_history.opening import open_store  # numpy

    store = open_store(address)
    options.project = options.project or settings.project
    options.branch = options.branch or settings.branch
    if options.sql is not None:
        status = _answer(store, options)
    elif options.test == _PRUNE:
        status = _prune(store, options)
    else:
        status = _show(store, options)
    for sentence in store.unread:
        print(f"tfperf: {one_line(sentence)}", file=sys.stderr)
    return status


def _answer(store: HistoryStore, options: argparse.Namespace) -> int:
    answer = store.sql(options.sql, options.project)
    rows = [[_plain(cell) for cell in row] for row in answer.rows]
    if options.json:
        print(json_text({"columns": list(answer.columns), "rows": rows}))
        return GOOD
    numbers = [
        all(isinstance(row[n], (int, float)) for row in rows) for n in range(len(answer.columns))
    ]
    texts = [["" if cell is None else one_line(str(cell)) for cell in row] for row in rows]
    write_out(*laid_out(Cells(list(map(one_line, answer.columns)), texts, numbers), width()))
    return GOOD


def _plain(cell: object) -> Any:
    """Return a cell as JSON has it."""
    return cell if cell is None or isinstance(cell, (bool, int, float)) else str(cell)


def _prune(store: HistoryStore, options: argparse.Namespace) -> int:
    from pytest_tfperf.run_history.rows import utc_time

    if options.before is None:
        options.parser.error("prune needs --before DATE")
    number = store.prune(options.project, utc_time(options.before), options.dry_run)
    done = "would be removed" if options.dry_run else "removed"
    print(f"{plural(number, 'run')} of {one_line(options.project)} {done}")
    return GOOD


def _show(store: HistoryStore, options: argparse.Namespace) -> int:
    trends = _trends(store, options)
    if not trends:
        return FAILED
    if options.csv:
        from pytest_tfperf.cli.history.otava_csv import otava_csv

        text, left_out = otava_csv([one.series for one in trends])
        sys.stdout.write(text)
        if left_out:
            print(
                f"tfperf: {plural(left_out, 'run')} left out, in which not every profile was "
                "measured; name a TEST to have all of its runs",
                file=sys.stderr,
            )
        return GOOD
    if options.output is not None:
        _write_page(trends, options)
    if options.json:
        print(json_text({"metric": options.metric, "series": [_json(one) for one in trends]}))
    elif options.test is None:
        write_out(*_overview(trends))
    else:
        write_out(*(line for one in trends for line in _runs(one, options.verbose > 0)))
    return GOOD


def _trends(store: HistoryStore, options: argparse.Namespace) -> list[_Trend]:
    """Return the series that are asked for; say what there is instead if there are none."""
    from pytest_tfperf.baseline.level_changes import level_changes
    from pytest_tfperf.run_history.queries import series_of
    from pytest_tfperf.run_history.rows import utc_time
    from pytest_tfperf.run_history.stores import Selection

    rows = store.rows(
        Selection(
            project=options.project,
            branch=options.branch,
            metrics=(options.metric,),
            since=utc_time(options.since) if options.since else None,
        )
    )
    # runs of a changed work tree are of no commit
    every = series_of(row for row in rows if not row.commit.endswith("+"))
    found = [
        one
        for one in every
        if options.test in (None, one.name, one.rows[-1].test, f"{one.rows[-1].file}::{one.name}")
    ]
    if not found:
        names = [one.name for one in every]
        stored = [] if names else store.rows(Selection(metrics=(options.metric,)))
        branches = {f"{row.branch} of {row.project}" for row in stored}
        print(f"tfperf: {_why_none(names, branches, options)}", file=sys.stderr)
    return [
        _Trend(series=one, changes=level_changes(one.values, one.commits, unit=one.rows[-1].unit))
        for one in found
    ]


def _why_none(names: Sequence[str], branches: Iterable[str], options: argparse.Namespace) -> str:
    """
    Explain that no run is stored for what was asked.

    Args:
        names: Tests of the project and branch that have runs.
        branches: Without such tests, branches and their projects that have runs.
        options: The options.
    """
    if names:
        known = and_more(sorted(set(names)), _NAMED)
        return f"no run of {one_line(options.test)}{meant(options.test, names)}; stored: {known}"
    unknown = "" if options.metric in METRICS else meant(options.metric, METRICS)
    since = f" since {options.since}" if options.since else ""
    where = f"project {one_line(options.project)}, branch {one_line(options.branch)}{since}"
    known = and_more(sorted(map(one_line, branches)), _NAMED)
    stored = f"; stored: {known}" if known else ""
    return f"no run with {one_line(options.metric)} is stored for {where}{unknown}{stored}"


def _overview(trends: Sequence[_Trend]) -> Iterator[RenderableType]:
    """Lay out a line for each series."""
    levels = levels_of(sys.stdout.encoding)
    rows = [
        [
            one_line(one.series.name),
            one_line(one.series.rows[-1].machine_class),
            str(len(one.series.rows)),
            one.text(one.series.values[-1]),
            sparkline(one.series.values, levels),
            one_line(one.changes.texts[-1]) if one.changes.texts else "",
        ]
        for one in trends
    ]
    titles = ["test", "machine class", "runs", "latest", "history", "last change of level"]
    yield from laid_out(Cells(titles, rows, [False, False, True, True, False, False]), width())


def _runs(trend: _Trend, every: bool) -> Iterator[RenderableType]:
    """Lay out the runs of a series, the latest last, and its changes of level."""
    rows = trend.series.rows if every else trend.series.rows[-_SHOWN:]
    yield Text(f"{one_line(trend.series.name)}: {one_line(trend.facts)}", style="bold")
    for sentence in trend.changes.sentences:
        yield Text(one_line(sentence))
    cells = [
        [f"{row.created:%Y-%m-%d %H:%M}", row.commit, trend.text(row.value or 0.0), row.verdict]
        for row in rows
    ]
    titles = ["end of run (UTC)", "commit", trend.series.rows[-1].metric, "verdict"]
    yield from laid_out(Cells(titles, cells, [False, False, True, False]), width())
    left_out = len(trend.series.rows) - len(rows)
    if left_out:
        yield Text(f"and {left_out} before them (-v shows all)", style="dim")


def _json(trend: _Trend) -> dict[str, Any]:
    last = trend.series.rows[-1]
    return {
        "file": last.file,
        "test": last.test,
        "profile": last.profile,
        "machine_class": last.machine_class,
        "unit": trend.unit,
        "values": list(trend.series.values),
        "commits": list(trend.series.commits),
        "created": [row.created.isoformat() for row in trend.series.rows],
        "changes": list(trend.changes.sentences) if trend.changes.points else [],
    }


def _write_page(trends: Sequence[_Trend], options: argparse.Namespace) -> None:
    from pytest_tfperf.report.html.history_chart import RecordedRuns
    from pytest_tfperf.report.html.trend_page import band_of, render_trends

    shown = [
        (
            one.series.name,
            one.facts,
            RecordedRuns(
                runs=one.series.values,
                commits=one.series.commits,
                metric=options.metric,
                unit=one.unit,
                band=band_of(one.series.values, one.changes),
            ),
            one.changes,
        )
        for one in trends
    ]
    facts = (f"project {options.project}, branch {options.branch}",)
    try:
        replace_file(options.output, render_trends(options.metric, shown, facts))
    except OSError as error:
        raise TfperfError(f"{options.output}: cannot be written: {error.strerror}") from error
