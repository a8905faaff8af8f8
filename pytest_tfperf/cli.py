"""The command `tfperf`."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_tfperf import __version__
from pytest_tfperf.baseline.store import entry_key
from pytest_tfperf.errors import TfperfError
from pytest_tfperf.report.runfile import read_run
from pytest_tfperf.report.terminal import render
from pytest_tfperf.results import BROKEN, FORMAT, Json, Run, Verdict

GOOD, FAILED, USAGE, UNKNOWN = 0, 1, 2, 3
_COLOURS = {"red": "31", "green": "32", "yellow": "33"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit status: 0 good, 1 a check failed, 2 unreadable input or usage, 3 a check is unknown."""
    options = _parser().parse_args(arguments)
    try:
        run = read_run(options.run)
    except TfperfError as error:
        print(f"tfperf: {error}", file=sys.stderr)
        return USAGE
    print(json.dumps(_profiles(run), indent=1, allow_nan=False) if options.json else _shown(run, options.verbose))
    return _status(run)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tfperf", description="Look at what pytest-tfperf measured, outside pytest.")
    parser.add_argument("--version", action="version", version=f"tfperf {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    show = commands.add_parser(
        "show", help="a run file as pytest showed it",
        description="Show a run file of pytest --tfperf-report run.json. Exit status 1 if a check in it failed, 3 if one is unknown.",
    )  # fmt: skip
    show.add_argument("run", type=Path, metavar="RUN.json", help="the run file")
    show.add_argument("-v", "--verbose", action="store_true", help="also the checks that passed, causes and notes")
    show.add_argument("--json", action="store_true", help="print the profiles as one JSON object")
    return parser


def _profiles(run: Run) -> Json:
    """`{"format", "profiles"}`, as all commands print it; a profile is named by its test."""
    named = [(test.nodeid, profile) for test in run.tests for profile in test.profiles]
    return {"format": FORMAT, "profiles": [profile.to_json() | {"name": entry_key(test, profile.name)} for test, profile in named]}


def _status(run: Run) -> int:
    verdicts = {check.verdict for test in run.tests for check in test.checks}
    if verdicts & (BROKEN - {Verdict.UNKNOWN}):
        return FAILED
    return UNKNOWN if Verdict.UNKNOWN in verdicts else GOOD


def _shown(run: Run, verbose: bool) -> str:
    lines = render(run, shutil.get_terminal_size((80, 24)).columns, int(verbose))
    if not sys.stdout.isatty():
        return "\n".join(line.text for line in lines)
    return "\n".join(f"\033[{_COLOURS[line.colour]}m{line.text}\033[0m" if line.colour else line.text for line in lines)


if __name__ == "__main__":
    sys.exit(main())
