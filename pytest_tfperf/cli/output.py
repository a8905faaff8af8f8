"""Common parts of the commands: exit status, options, output."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pytest_tfperf.report.terminal import TextLine
from pytest_tfperf.report.text_layout import BOUNDLESS, wrapped
from pytest_tfperf.results import BROKEN, FORMAT, Check, Profile, Verdict
from pytest_tfperf.values import Json

GOOD, FAILED, USAGE, UNKNOWN = 0, 1, 2, 3
TRACES = "an .xplane.pb file, or a logdir, whose newest run is taken"
_COLOURS = {"red": "31", "green": "32", "yellow": "33"}


def add_command(
    commands: Any, name: str, run: object, short: str, long: str, example: str
) -> argparse.ArgumentParser:
    """
    Add a command.

    Args:
        commands: Subparsers of the parser.
        name: Name of the command.
        run: Function that runs it, with the options and the unrecognised arguments.
        short: Description in the list of commands.
        long: Description in the command's own help.
        example: Arguments of an example.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=short, description=long, epilog=f"Example: tfperf {name} {example}"
    )
    parser.set_defaults(run_command=run, parser=parser)
    return parser


def add_output(parser: argparse.ArgumentParser, more: str) -> None:
    """Add -v, which also shows `more`, and --json."""
    parser.add_argument("-v", "--verbose", action="store_true", help=f"also show {more}")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def refuse(options: argparse.Namespace, rest: Sequence[str]) -> None:
    """Exit with a message if there are unrecognised arguments."""
    if rest:
        options.parser.error(f"unrecognized arguments: {' '.join(rest)}")


def profiles_json(profiles: Iterable[Profile]) -> str:
    """Return `{"format", "profiles"}` as JSON text."""
    content: Json = {"format": FORMAT, "profiles": [profile.to_json() for profile in profiles]}
    return json.dumps(content, indent=1, allow_nan=False)


def status_of(checks: Iterable[Check]) -> int:
    """Return the exit status for these checks."""
    verdicts = {check.verdict for check in checks}
    if verdicts & (BROKEN - {Verdict.UNKNOWN}):
        return FAILED
    return UNKNOWN if Verdict.UNKNOWN in verdicts else GOOD


def width(otherwise: int = BOUNDLESS) -> int:
    """Return the columns of the terminal or of COLUMNS, and `otherwise` for a file or a pipe."""
    return shutil.get_terminal_size((otherwise, 24)).columns


def coloured(lines: Iterable[TextLine]) -> str:
    """Join lines to text that fits the terminal, with colours if stdout is one."""
    on_terminal = sys.stdout.isatty()
    shown = [(wrapped(line.text, width(), line.deeper), line.colour) for line in lines]
    return "\n".join(
        f"\033[{_COLOURS[colour]}m{text}\033[0m" if colour and on_terminal else text
        for text, colour in shown
    )


def fitted(
    render: Callable[[Profile, bool, int], str], profile: Profile, options: argparse.Namespace
) -> str:
    """
    Render a profile for the columns of the terminal.

    Args:
        render: Renders a profile, verbosely or not, for a width.
        profile: The profile.
        options: Options of the command.
    """
    return wrapped(render(profile, options.verbose, width()), width())
