"""Commands for run files: show, report, accept, bisect."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_tfperf.baseline.store import entry_key
from pytest_tfperf.cli.common import (
    FAILED,
    GOOD,
    add_command,
    add_output,
    is_run_file,
    profiles_json,
    read_run_file,
    status_of,
)
from pytest_tfperf.cli.project_settings import project_settings
from pytest_tfperf.cli.terminal import width, write_out
from pytest_tfperf.report.bisect_status import run_for_bisect
from pytest_tfperf.report.run_file import find_last_run, write_run
from pytest_tfperf.report.run_text import render
from pytest_tfperf.text import and_more, for_terminal, plural

if TYPE_CHECKING:
    from pytest_tfperf.baseline.record import Recorded

_NAMED = 3


def add_commands(commands: Any) -> None:
    """Add the commands to the parser."""
    _add_show(commands)
    _add_report(commands)
    _add_accept(commands)
    _add_bisect(commands)


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
    accept.set_defaults(takes=lambda word: not word.startswith("-"))  # words after an option
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
        help="deprecated, without effect: busy runs are recorded anyway",
    )
    accept.add_argument(
        "--tfperf-history",
        dest="history",
        metavar="URL",
        help="add the runs to a team's history too (default: ini tfperf_history)",
    )


def _add_bisect(commands: Any) -> None:
    bisect = add_command(
        commands,
        "bisect",
        _bisect,
        "run pytest for git bisect run",
        (
            "Run python -m pytest ARGS for git bisect run. Exit status 0 if all checks of profiled "
            "tests are decided and none failed, 1 if one did, 125 if the commit cannot be tested, "
            "as where a check is undecided, a test fails otherwise, or pytest crashes. The last "
            "line says why."
        ),
        "-- test_speed.py --tfperf-against v1.0",
    )
    bisect.set_defaults(takes=lambda _: True)
    bisect.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="-- ARGS", help="arguments of pytest"
    )


def _show(options: argparse.Namespace) -> int:
    run = read_run_file(_path_of(options))
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
            facts = (plural(len(run.tests), "test"), run.created, run.commit)
            write_out(f"last run: {', '.join(filter(None, facts))}")
        write_out(*render(run, width(), options.verbose))
    return status_of(check for test in run.tests for check in test.checks)


def _report(options: argparse.Namespace) -> int:
    write_run(read_run_file(_path_of(options)), options.output)
    return GOOD


def _path_of(options: argparse.Namespace) -> Path:
    """Return the run file that the options name."""
    if options.last == (options.run is not None):
        options.parser.error("give either a run file, or --last for pytest's last run")
    path: Path = find_last_run(Path.cwd()) if options.last else options.run
    return path


def _accept(options: argparse.Namespace) -> int:
    from pytest_tfperf.baseline.history import KNOWN  # numpy
    from pytest_tfperf.baseline.record import accept

    words = [*options.words, *options.rest]
    paths = [Path(word) for word in words if is_run_file(Path(word))]
    if not paths:
        options.parser.error(
            f"{words[0]} is not a run file: give at least one .json of pytest --tfperf-report"
        )
    names = [word for word in words if not is_run_file(Path(word))]
    folder = None if options.baseline_dir is None else options.baseline_dir.absolute()
    runs = [read_run_file(path) for path in paths]
    settings = project_settings(options.rootdir)
    address = options.history or settings.history
    recorded = accept(runs, names, options.rootdir, folder, keeps_times=not address)
    print(for_terminal(_accepted(recorded, len(paths))))
    if address:
        from pytest_tfperf.stores.history import open_store
        from pytest_tfperf.stores.rows import rows_of

        store = open_store(address)
        rows = [rows_of(run, settings.project) for run in runs]
        n_added = sum(map(store.append, rows))
        print(f"history: {plural(n_added, 'run')} added, {len(runs) - n_added} there already")
    changed = recorded.entries or recorded.added or recorded.anew
    is_known = all(change.what.endswith(KNOWN) for change in recorded.left_out)
    return GOOD if changed or is_known else FAILED


def _accepted(recorded: Recorded, n_runs: int) -> str:
    """Write a line for each entry and history that changed, or was left out with the reason."""
    n_histories = len(recorded.added) + len(recorded.anew)
    entries = plural(len(recorded.entries), "entry", "entries")
    histories = plural(n_histories, "history", "histories")
    head = f"{plural(n_runs, 'run')}: {entries} and {histories} changed"
    changes = [
        f"  {change.what}: {change.key} in {change.path}"
        for change in (*recorded.entries, *recorded.anew, *recorded.added)
    ]
    runs: dict[tuple[str, str], list[str]] = {}
    for change in recorded.left_out:
        runs.setdefault((change.key, change.what), []).append(change.run)
    left_out = [
        f"  left out: {key}: {what} (run of {and_more(created, _NAMED)})"
        for (key, what), created in runs.items()
    ]
    return "\n".join([head, *changes, *left_out])


def _bisect(options: argparse.Namespace) -> int:
    # without --, argparse stops at options that it does not know
    words = [*options.rest, *options.arguments]
    return run_for_bisect(words[1:] if words[:1] == ["--"] else words)
