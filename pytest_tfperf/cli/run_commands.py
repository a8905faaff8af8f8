"""Commands for run files: show, report, compare (also for traces), accept."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_tfperf.baseline.store import entry_key
from pytest_tfperf.cli.file_kinds import refuse_trace
from pytest_tfperf.cli.history.project_settings import project_settings
from pytest_tfperf.cli.output import (
    FAILED,
    GOOD,
    TRACES,
    add_command,
    add_output,
    json_text,
    profiles_json,
    refuse,
    refuse_other_ending,
    status_of,
    write_page,
)
from pytest_tfperf.cli.terminal import styled_lines, this_screen, write_out
from pytest_tfperf.errors import TfperfError
from pytest_tfperf.report.run_file import find_last_run, read_run, write_run
from pytest_tfperf.report.run_text import render
from pytest_tfperf.runs import Run
from pytest_tfperf.text import for_terminal, plural


def add_commands(commands: Any) -> None:
    """Add the commands to the parser."""
    _add_show(commands)
    _add_report(commands)
    _add_compare(commands)
    _add_accept(commands)


def _add_show(commands: Any) -> None:
    show = add_command(
        commands,
        "show",
        _show,
        "show a run file as pytest did",
        (
            "Show a run file of pytest --tfperf-report run.json, or the results of the last run. "
            "Exit status 1 if a check in it failed, 2 if it cannot be read, 3 if a value is "
            "unknown."
        ),
        "--last -v",
    )
    _add_run(show)
    add_output(show, "checks that passed, causes, and notes")


def _add_report(commands: Any) -> None:
    report = add_command(
        commands,
        "report",
        _report,
        "write a run file as a page, as Markdown or as a table",
        (
            "Write a run file of pytest --tfperf-report in the format that the ending of FILE "
            "tells: a self-contained page (.html), Markdown (.md), one row a metric (.csv), or "
            "JSON (.json). Exit status 2 if it cannot be read or written."
        ),
        "--last -o perf.html",
    )
    _add_run(report)
    report.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="file to write"
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    """Add the run file and --last, of which exactly one is given."""
    parser.add_argument("run", type=Path, nargs="?", metavar="RUN.json", help="the run file")
    parser.add_argument(
        "--last",
        action="store_true",
        help="take the last run that profiled a test, from pytest's cache here or above",
    )


def _add_compare(commands: Any) -> None:
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


def _add_accept(commands: Any) -> None:
    accept = add_command(
        commands,
        "accept",
        _accept,
        "record run files, such as those of CI, as baselines",
        (
            "Record the content of run files of pytest --tfperf-report, as --tfperf-update would "
            "have: for each test the structure of the newest run, and the times of all. A run that "
            "is recorded already does not count twice, and a test that failed is left out. Exit "
            "status 1 if nothing could be accepted, 2 if a file cannot be read or written. If one "
            "cannot be read, no file changes. If one cannot be written, those before it are, and "
            "the same command writes the rest."
        ),
        "ci-1/run.json ci-2/run.json test_train_step",
    )
    accept.add_argument(
        "words",
        nargs="+",
        metavar="RUN.json|TEST",
        help="run files, and names or node ids of tests: only these are recorded",
    )
    accept.add_argument(
        "--rootdir",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="pytest's rootdir (default: the current folder)",
    )
    accept.add_argument(
        "--baseline-dir", type=Path, metavar="DIR", help="as pytest --tfperf-baseline-dir"
    )
    accept.add_argument(
        "--tfperf-record-noisy",
        dest="record_noisy",
        action="store_true",
        help="record disturbed step times too",
    )
    accept.add_argument(
        "--tfperf-history",
        dest="history",
        metavar="URL",
        help="add the runs to a team's history too (default: ini tfperf_history)",
    )


def _show(options: argparse.Namespace, rest: Sequence[str]) -> int:
    refuse(options, rest)
    run = _read_run(_path_of(options))
    if options.json:
        print(
            profiles_json(
                replace(profile, name=entry_key(test.nodeid, profile.name))
                for test in run.tests
                for profile in test.profiles
            )
        )
    else:
        if options.last:
            write_out(_described(run))
        screen = this_screen()
        lines = render(run, screen.width, options.verbose, ascii_only=screen.ascii_only)
        write_out(*styled_lines(lines))
    return status_of(check for test in run.tests for check in test.checks)


def _report(options: argparse.Namespace, rest: Sequence[str]) -> int:
    refuse(options, rest)
    write_run(_read_run(_path_of(options)), options.output)
    return GOOD


def _path_of(options: argparse.Namespace) -> Path:
    """Return the run file that the options name."""
    if options.last == (options.run is not None):
        options.parser.error("give either a run file, or --last for pytest's last run")
    path: Path = find_last_run(Path.cwd()) if options.last else options.run
    return path


def _read_run(path: Path) -> Run:
    """
    Read a run file.

    Raises:
        TfperfError: If it is a trace, or cannot be read.
    """
    refuse_trace(path)
    return read_run(path)


def _described(run: Run) -> str:
    """Describe the last run: its tests, time and commit."""
    facts = (plural(len(run.tests), "test"), run.created, run.commit)
    return f"last run: {', '.join(filter(None, facts))}"


def _accept(options: argparse.Namespace, rest: Sequence[str]) -> int:
    # argparse ends the words at the first option
    words = [*options.words, *(word for word in rest if not word.startswith("-"))]
    refuse(options, [word for word in rest if word.startswith("-")])
    from pytest_tfperf.baseline.record import accept  # numpy
    from pytest_tfperf.cli.accept import is_accepted, render_accepted

    paths = [Path(word) for word in words if _is_run_file(Path(word))]
    if not paths:
        options.parser.error(
            f"{words[0]} is not a run file: give at least one .json of pytest --tfperf-report"
        )
    names = [word for word in words if not _is_run_file(Path(word))]
    folder = None if options.baseline_dir is None else options.baseline_dir.absolute()
    runs = [_read_run(path) for path in paths]
    settings = project_settings(options.rootdir)
    address = options.history or settings.history
    recorded = accept(
        runs, names, options.rootdir, folder, options.record_noisy, keeps_times=not address
    )
    print(for_terminal(render_accepted(recorded, len(paths))))
    if address:
        _add_to_history(runs, address, settings.project, options.record_noisy)
    return GOOD if is_accepted(recorded) else FAILED


def _add_to_history(runs: Sequence[Run], address: str, project: str, also_noisy: bool) -> None:
    """
    Add runs to a history.

    Args:
        runs: The runs.
        address: Address of the store.
        project: Name of the project.
        also_noisy: Whether later runs are compared with disturbed times too.

    Raises:
        TfperfError: If that fails.
    """
    from pytest_tfperf.run_history.opening import open_store
    from pytest_tfperf.run_history.rows import rows_of

    store = open_store(address)
    added = [store.append(rows_of(run, project, also_noisy)) for run in runs]
    print(f"history: {plural(sum(added), 'run')} added, {len(added) - sum(added)} there already")


def _is_run_file(path: Path) -> bool:
    """Return whether an argument names a run file, and not a test."""
    return path.suffix == ".json" and "::" not in str(path)


def _compare(options: argparse.Namespace, rest: Sequence[str]) -> int:
    refuse(options, rest)
    runs = [_is_run_file(path) for path in (options.before, options.after)]
    if all(runs):
        return _compare_runs(options)
    if any(runs):
        run, trace = (options.before, options.after) if runs[0] else (options.after, options.before)
        raise TfperfError(f"{run} is a run file and {trace} a trace: give two of one kind")
    refuse_other_ending(options.output, "traces")
    from pytest_tfperf.cli.compare_traces import comparison_view  # numpy
    from pytest_tfperf.report.comparison import compared_json, read_compared_trace

    before, after = read_compared_trace(options.before), read_compared_trace(options.after)
    if options.output is not None:
        from pytest_tfperf.report.html.trace_pages import render_compared  # jinja2

        write_page(options.output, render_compared(before, after))
    if options.json:
        print(json_text(compared_json(before, after)))
    else:
        write_out(*comparison_view(before, after, options.verbose, this_screen()))
    return GOOD


def _compare_runs(options: argparse.Namespace) -> int:
    from pytest_tfperf.baseline.compare_runs import compare_runs  # numpy
    from pytest_tfperf.report.comparison import compared_runs_json, render_compared_runs

    before, after = _read_run(options.before), _read_run(options.after)
    compared = compare_runs(before, after)
    if options.output is not None:
        write_run(compared, options.output)
    if options.json:
        print(json_text(compared_runs_json(before, after, compared)))
    else:
        columns, verbose = this_screen().width, options.verbose > 0
        write_out(*styled_lines(render_compared_runs(before, after, compared, columns, verbose)))
    return status_of(check for test in compared.tests for check in test.checks)
