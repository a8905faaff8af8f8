"""The command `tfperf compare`, of two traces or of two run files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_tfperf.cli.common import (
    GOOD,
    TRACES,
    add_command,
    add_output,
    is_run_file,
    json_text,
    read_run_file,
    refuse_other_ending,
    status_of,
    write_page,
)
from pytest_tfperf.cli.terminal import (
    Line,
    Screen,
    labelled,
    laid_out,
    profile_table,
    this_screen,
    write_out,
)
from pytest_tfperf.errors import TfperfError
from pytest_tfperf.report.run_file import write_run

if TYPE_CHECKING:
    from pytest_tfperf.report.comparison import ComparedTraces


def add_commands(commands: Any) -> None:
    """Add the command to the parser."""
    compare = add_command(
        commands,
        "compare",
        _compare,
        "compare two traces or two run files",
        (
            "Show the metrics of two traces side by side, and the differences of their HLO: ops, "
            "fusions and shapes. Of two run files compare every profile as pytest "
            "--tfperf-baseline does, and show the differences: exit status 1 if a profile is worse "
            "or missing, 3 if a value is unknown. Exit status 2 if a file cannot be read."
        ),
        "before.json after.json -o changes.html",
    )
    compare.add_argument(
        "before",
        type=Path,
        metavar="A",
        help=f"{TRACES}; or a run file (.json) of pytest --tfperf-report",
    )
    compare.add_argument(
        "after", type=Path, metavar="B", help="trace or run file to compare with it"
    )
    compare.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="write the comparison: of traces as a page (.html), of run files as tfperf report",
    )
    add_output(
        compare,
        "all rows of tables for traces; for run files also checks that passed, causes, and more "
        "differences",
    )


def _compare(options: argparse.Namespace) -> int:
    runs = [is_run_file(path) for path in (options.before, options.after)]
    if all(runs):
        return _compare_runs(options)
    if any(runs):
        run, trace = (options.before, options.after) if runs[0] else (options.after, options.before)
        raise TfperfError(f"{run} is a run file and {trace} a trace: give two of one kind")
    refuse_other_ending(options.output, "traces")
    from pytest_tfperf.report.comparison import compare_traces  # numpy

    compared = compare_traces(options.before, options.after)
    if options.output is not None:
        from pytest_tfperf.report.html.trace_pages import render_compared  # jinja2

        write_page(options.output, render_compared(compared))
    if options.json:
        print(json_text(compared.to_json()))
    else:
        write_out(*_compared_traces(compared, options.verbose, this_screen()))
    return GOOD


def _compared_traces(
    compared: ComparedTraces, verbosity: int, screen: Screen
) -> Iterator[str | Line]:
    """Yield the metrics known in one or both traces, and what differs in the HLO."""
    yield from compared.titles
    for note in compared.notes:
        yield from labelled([("note:", note)])
    yield ""
    yield from laid_out(compared.metrics, screen.width)
    for key, table in compared.hlo.items():
        yield ""
        if table.rows:
            yield from profile_table(key, table, verbosity, screen)
        else:
            yield f"{table.title}: none"


def _compare_runs(options: argparse.Namespace) -> int:
    from pytest_tfperf.baseline.compare_runs import compare_runs  # numpy
    from pytest_tfperf.report.comparison import compared_runs_json, render_compared_runs

    before, after = read_run_file(options.before), read_run_file(options.after)
    compared = compare_runs(before, after)
    if options.output is not None:
        write_run(compared, options.output)
    if options.json:
        print(json_text(compared_runs_json(before, after, compared)))
    else:
        columns, verbose = this_screen().width, options.verbose > 0
        write_out(*render_compared_runs(before, after, compared, columns, verbose))
    return status_of(check for test in compared.tests for check in test.checks)
