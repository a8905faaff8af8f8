"""The command `tfperf`."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from pytest_tfperf import __version__
from pytest_tfperf.cli import (
    capture_command,
    check_command,
    doctor,
    metric_list,
    run_commands,
    shell_completion,
    trace_commands,
)
from pytest_tfperf.cli.history import history_command
from pytest_tfperf.cli.output import GOOD, USAGE, meant
from pytest_tfperf.errors import TfperfError
from pytest_tfperf.text import for_terminal

INTERRUPTED = 130  # exit status of shells after SIGINT


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run the command.

    Returns:
        The exit status: 0 ok, 1 check failed, 2 usage or I/O error, 3 metric unavailable.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # A pipe on Windows has an encoding without arrows; standard error escapes them by itself.
        sys.stdout.reconfigure(errors="replace")
    parser, words = command_parser(), sys.argv[1:] if arguments is None else list(arguments)
    if not words:
        parser.print_help()
        return GOOD
    _refuse_unknown_command(parser, words)
    options, rest = parser.parse_known_args(words)
    try:
        return int(options.run_command(options, rest))
    except TfperfError as error:
        print(for_terminal(f"tfperf: {error}"), file=sys.stderr)
        return USAGE
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return GOOD
    except KeyboardInterrupt:
        return INTERRUPTED


def command_parser() -> argparse.ArgumentParser:
    """Make the parser of the command, with all its subcommands."""
    parser = argparse.ArgumentParser(
        prog="tfperf",
        description="Examine traces and results of pytest-tfperf outside pytest.",
        epilog=(
            "Exit status: 0 ok, 1 check failed, 2 usage or I/O error, 3 metric unavailable. "
            "See tfperf COMMAND --help for each command."
        ),
    )
    parser.add_argument("--version", action="version", version=f"tfperf {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for kind in (
        trace_commands,
        check_command,
        capture_command,
        run_commands,
        history_command,
        metric_list,
        doctor,
    ):
        kind.add_commands(commands)
    shell_completion.add_commands(commands, command_parser)
    return parser


def _refuse_unknown_command(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Exit with a suggestion if the command does not exist."""
    valid = shell_completion.commands_of(parser)
    name = next((word for word in words if not word.startswith("-")), None)
    if name is not None and name not in valid:
        listed = f"; valid: {', '.join(valid)}"
        parser.error(f"no command {name}{meant(name, valid) or listed}")


if __name__ == "__main__":
    sys.exit(main())
