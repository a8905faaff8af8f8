"""The command `tfperf`."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from pytest_tfperf import __version__
from pytest_tfperf.cli import doctor, run_commands, trace_commands
from pytest_tfperf.cli.output import GOOD, USAGE
from pytest_tfperf.errors import TfperfError

INTERRUPTED = 130  # exit status of shells after SIGINT


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run the command.

    Returns:
        The exit status: 0 good, 1 a check failed, 2 unreadable input or wrong usage, 3 a check is
        unknown.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # A pipe on Windows has an encoding without arrows; standard error escapes them by itself.
        sys.stdout.reconfigure(errors="replace")
    options, rest = _parser().parse_known_args(arguments)
    try:
        return int(options.run_command(options, rest))
    except TfperfError as error:
        print(f"tfperf: {error}", file=sys.stderr)
        return USAGE
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return GOOD
    except KeyboardInterrupt:
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tfperf",
        description="Examine traces and results of pytest-tfperf outside pytest.",
        epilog=(
            "Exit status: 0 good; 1 a check failed; 2 wrong usage, or a file that cannot be read "
            "or written; 3 the answer is unknown. See tfperf COMMAND --help for each command."
        ),
    )
    parser.add_argument("--version", action="version", version=f"tfperf {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for kind in (trace_commands, run_commands, doctor):
        kind.add_commands(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
