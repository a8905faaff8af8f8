"""The command `tfperf`, and its completion in shells."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from pytest_tfperf import __version__
from pytest_tfperf.cli.common import GOOD, USAGE, add_command, path_or_url, say
from pytest_tfperf.errors import TfperfError
from pytest_tfperf.metric_registry import METRICS, nearest

INTERRUPTED = 130  # exit status of shells after SIGINT
_SHELLS = ("bash", "zsh", "tcsh")
COMMANDS = {
    "analyze": "trace_commands",
    "padding": "trace_commands",
    "export": "trace_commands",
    "check": "check",
    "capture": "capture",
    "show": "run_commands",
    "report": "run_commands",
    "accept": "run_commands",
    "bisect": "run_commands",
    "compare": "compare",
    "history": "history",
    "metrics": "metrics",
    "doctor": "doctor",
    "completion": "main",
}
"""The module of each command, which is imported for it alone."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its status: that of `common`, or 130 after an interrupt."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # A pipe on Windows has an encoding without arrows; standard error escapes them by itself.
        sys.stdout.reconfigure(errors="replace")
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = command_parser(COMMANDS.get(words[0]) if words else None)
    if not words:
        parser.print_help()
        return GOOD
    _refuse_unknown_command(parser, words)
    options, rest = parser.parse_known_args(words)
    _refuse_unknown_arguments(options, [word for word in rest if not options.takes(word)])
    options.rest = rest
    try:
        return int(options.run_command(options))
    except TfperfError as error:
        say(error)
        return USAGE
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return GOOD
    except KeyboardInterrupt:
        return INTERRUPTED


def command_parser(module: str | None = None) -> argparse.ArgumentParser:
    """Make the parser of the commands of one module, or of all."""
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
    for name in dict.fromkeys(COMMANDS.values()) if module is None else [module]:
        import_module(f"pytest_tfperf.cli.{name}").add_commands(commands)
    return parser


def add_commands(commands: Any) -> None:
    """Add the command `completion` to the parser."""
    completion = add_command(
        commands,
        "completion",
        _completion,
        "print a script for shell completion",
        (
            "Print the script that completes commands, options and metrics in a shell. In bash: "
            'eval "$(tfperf completion bash)" in ~/.bashrc. Needs shtab (pip install shtab). '
            "Exit status 2 without it."
        ),
        "bash",
    )
    completion.add_argument("shell", choices=_SHELLS, help="the shell")


def _completion(options: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError as error:
        raise TfperfError("shell completion needs shtab: pip install shtab") from error
    parser = command_parser()
    commands = commands_of(parser)
    for action in commands["metrics"]._actions:
        if action.dest == "name":
            action.choices = list(METRICS)
    for command in commands.values():
        for action in command._actions:
            if action.type in (Path, path_or_url):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell=options.shell))
    return GOOD


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each command."""
    [found] = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    return dict(found.choices)


def _refuse_unknown_command(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Exit with a suggestion if the command does not exist."""
    name = next((word for word in words if not word.startswith("-")), None)
    if name is not None and name not in COMMANDS:
        parser.error(f"no command {name!r}; {nearest(name, COMMANDS)}")


def _refuse_unknown_arguments(options: argparse.Namespace, rest: Sequence[str]) -> None:
    for word in rest:
        if word.startswith("-"):
            flags = [flag for action in options.parser._actions for flag in action.option_strings]
            options.parser.error(f"no option {word!r}; {nearest(word, flags)}")
    if rest:
        options.parser.error(f"unrecognized arguments: {' '.join(rest)}")


if __name__ == "__main__":
    sys.exit(main())
