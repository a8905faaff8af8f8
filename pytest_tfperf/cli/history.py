"""The command `tfperf history`: the runs of a team, and since which commit a step is slower."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_tfperf.cli.common import (
    FAILED,
    GOOD,
    add_command,
    add_output,
    json_text,
    refuse_other_ending,
    say,
    silence_libraries,
    write_page,
)
from pytest_tfperf.cli.project_settings import project_settings
from pytest_tfperf.cli.terminal import laid_out, width, write_out
from pytest_tfperf.metric_registry import METRICS, nearest
from pytest_tfperf.report.text_table import TextTable
from pytest_tfperf.text import and_more, for_terminal, one_line, plural

if TYPE_CHECKING:
    from pytest_tfperf.cli.trends import Trend
    from pytest_tfperf.stores.rows import HistoryStore, MetricRow

_PRUNE = "prune"
_NAMED = 5


_OPTIONS = (
    ("--store", "URL", "the store, where TEST alone would be taken for one"),
    (
        "--project",
        "NAME",
        "project in the store (default: ini tfperf_history_project, or the git repository)",
    ),
    ("--metric", "NAME", "metric to show (default: step_time)"),
    ("--since", "DATE", "only runs since a date: 2026-10-01"),
    (
        "--branch",
        "NAME",
        "only runs of a branch (default: ini tfperf_history_branch, or main)",
    ),
    ("--sql", "SELECT", "answer a query on the table runs"),
    (
        "--before",
        "DATE",
        "with prune: remove runs that ended before a date, or a time as in 2026-01-01T12:30",
    ),
)


def add_commands(commands: Any) -> None:
    """Add the command to the parser."""
    history = add_command(
        commands,
        "history",
        _history,
        "show the runs of a team's history, and their changes of level",
        (
            "Show the values of a metric in the runs that pytest --tfperf-history stored: a line a "
            "test, or all runs of one TEST, with the commits since which the level is another one, "
            "and whether later runs are compared with each run. Or remove old runs: tfperf history "
            "prune --before DATE. Exit status 1 if nothing is stored for what was asked, 2 if the "
            "store is missing or cannot be read."
        ),
        "s3://team/tfperf test_train_step --since 2026-10-01",
    )
    for name, metavar, what in (
        (
            "place",
            "STORE",
            "folder, URL or postgresql:// of the store (default: --store, or ini tfperf_history)",
        ),
        ("test", "TEST", "name of a test or profile; or prune"),
    ):
        history.add_argument(name, nargs="?", type=_given, metavar=metavar, help=what)
    for name, metavar, what in _OPTIONS:
        history.add_argument(name, type=_given, metavar=metavar, help=what)
    history.set_defaults(metric="step_time")
    history.add_argument(
        "--dry-run", action="store_true", help="with prune: only say how many runs that are"
    )
    history.add_argument(
        "-o", "--output", type=_file, metavar="FILE", help="write a page with charts (.html)"
    )
    add_output(history, "all runs")


def _given(text: str) -> str:
    """Return the value of an option, which is not empty, as one of an unset variable would be."""
    if not text:
        raise argparse.ArgumentTypeError("the value is empty")
    return text


def _file(text: str) -> Path:
    return Path(_given(text))


def _history(options: argparse.Namespace) -> int:
    refuse_other_ending(options.output, "a history")
    silence_libraries()
    settings = project_settings()
    _read_arguments(options)
    address = options.store or settings.history
    if not address:
        what = f"{options.test} is no folder and no URL; " if options.test else ""
        options.parser.error(
            f"no store: {what}give its folder or URL, as in tfperf history s3://team/tfperf, or "
            "set the ini value tfperf_history"
        )
    from pytest_tfperf.stores.history import open_store  # numpy

    store = open_store(address)
    store.refuse_missing()
    options.project, options.counted_branch = options.project or settings.project, settings.branch
    options.branch = options.branch or settings.branch
    if options.sql is not None:
        status = _answer(store, options)
    elif options.test == _PRUNE:
        status = _prune(store, options)
    else:
        status = _show(store, options)
    for sentence in store.unread:
        say(one_line(sentence))
    return status


def _read_arguments(options: argparse.Namespace) -> None:
    """Tell the store from the test: the first of two is the store, as is a folder or URL alone."""
    place, test = options.place, options.test
    if place is None:
        return
    if test is not None and options.store is not None:
        options.parser.error(f"two stores: {place} and --store {options.store}; give one")
    is_store = options.store is None and ("://" in place or Path(place).is_dir())
    if test is not None or (is_store and place != _PRUNE):
        options.store = place
    else:
        options.test = place


def _say_if_absent(store: HistoryStore, project: str) -> None:
    """Say that a project has no runs, where it has none."""
    sentence = _absent_project(store, project)
    if sentence:
        say(one_line(sentence))


def _answer(store: HistoryStore, options: argparse.Namespace) -> int:
    from pytest_tfperf.cli.trends import cell  # numpy

    answer = store.sql(options.sql, options.project)
    rows = [[_plain(value) for value in row] for row in answer.rows]
    if not rows:
        _say_if_absent(store, options.project)
    if options.json:
        print(json_text({"columns": list(answer.columns), "rows": rows}))
        return GOOD
    numbers = [
        all(isinstance(row[n], (int, float)) for row in rows) for n in range(len(answer.columns))
    ]
    texts = [["" if value is None else cell(str(value)) for value in row] for row in rows]
    write_out(*laid_out(TextTable(list(map(cell, answer.columns)), texts, numbers), width()))
    return GOOD


def _plain(value: object) -> Any:
    """Return a cell as JSON has it."""
    is_number = isinstance(value, (bool, int, float)) and math.isfinite(value)
    return value if value is None or is_number else str(value)


def _prune(store: HistoryStore, options: argparse.Namespace) -> int:
    from pytest_tfperf.stores.rows import utc_time

    if options.before is None:
        options.parser.error("prune needs --before DATE")
    number = store.prune(options.project, utc_time(options.before), options.dry_run)
    if not number:
        _say_if_absent(store, options.project)
    done = "would be removed" if options.dry_run else "removed"
    print(for_terminal(f"{plural(number, 'run')} of {one_line(options.project)} {done}"))
    return GOOD


def _show(store: HistoryStore, options: argparse.Namespace) -> int:
    from pytest_tfperf.cli.trends import overview, table_of_runs

    trends = _trends(store, options)
    if not trends:
        return FAILED
    if options.output is not None:
        _write_page(trends, options)
        say(one_line(f"{options.output} was written"))
    if options.json:
        print(json_text({"metric": options.metric, "series": [one.to_json() for one in trends]}))
    elif options.test is None:
        write_out(*overview(trends))
    else:
        write_out(*(line for one in trends for line in table_of_runs(one, options.verbose > 0)))
    return GOOD


def _trends(store: HistoryStore, options: argparse.Namespace) -> list[Trend]:
    """Return the series that are asked for; say what there is instead if there are none."""
    from pytest_tfperf.cli.trends import COLUMNS, trends_of
    from pytest_tfperf.stores.rows import Selection, utc_time

    rows = store.rows(
        Selection(
            project=options.project,
            branch=options.branch,
            metrics=(options.metric,),
            since=utc_time(options.since) if options.since else None,
            columns=COLUMNS,
        )
    )
    # runs of a changed work tree are of no commit
    committed = (row for row in rows if not row.commit.endswith("+"))
    every = trends_of(committed, options.counted_branch)
    found = [
        one
        for one in every
        if options.test in (None, one.name, one.rows[-1].test, f"{one.rows[-1].file}::{one.name}")
    ]
    if not found:
        say(one_line(_why_none(store, options, rows, [one.name for one in every])))
    return found


def _write_page(trends: Sequence[Trend], options: argparse.Namespace) -> None:
    from pytest_tfperf.report.html.trace_pages import render_trends

    shown = [(one.name, one.facts, one.history) for one in trends]
    facts = (f"project {options.project}, branch {options.branch}",)
    write_page(options.output, render_trends(options.metric, shown, facts))


def _absent_project(store: HistoryStore, project: str) -> str:
    """Say that a store has no run of a project, and whose runs it has; empty if it has one."""
    found = store.sql("SELECT DISTINCT project FROM runs", "").rows
    projects = sorted(str(name) for (name,) in found)
    if project in projects:
        return ""
    if not projects:
        return f"{store.name}: it has no runs"
    return f"{store.name}: no run of project {project!r}; {nearest(project, projects)}"


def _why_none(
    store: HistoryStore,
    options: argparse.Namespace,
    found: Sequence[MetricRow],
    names: Sequence[str],
) -> str:
    """Explain that no run is stored, by the rows of what was asked and tests that they are of."""
    if names:
        return f"no run of {options.test!r}; {nearest(options.test, set(names))}"
    absent = _absent_project(store, options.project)
    if absent:
        return absent
    unknown = "" if options.metric in METRICS else f"; {nearest(options.metric, METRICS)}"
    since = f" since {options.since}" if options.since else ""
    where = f"project {options.project}, branch {options.branch}{since}"
    changed = len({row.run for row in found if row.commit.endswith("+")})
    left_out = f"; {plural(changed, 'run')} of a changed work tree left out" if changed else ""
    from pytest_tfperf.stores.rows import Selection

    rows = store.rows(Selection(project=options.project, metrics=(options.metric,)))
    return (
        f"no run with {options.metric} is stored for {where}{unknown}{left_out}"
        f"{_stored(row.branch for row in rows if row.value is not None)}"
    )


def _stored(branches: Iterable[str]) -> str:
    """Name the branches that have runs; the name is empty for runs without a branch."""
    names = sorted(set(branches))
    if not names:
        return ""
    known = [f"branch {name}" if name else "runs without a branch" for name in names]
    hint = "" if all(names) else " (git or a variable of CI names the branch of a run)"
    return f"; stored: {and_more(known, _NAMED)}{hint}"
