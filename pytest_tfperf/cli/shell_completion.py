"""The command `tfperf completion`, which prints a script for the completion of a shell."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_tfperf.cli.output import GOOD, add_command, path_or_url, refuse
from pytest_tfperf.errors import TfperfError
from pytest_tfperf.metric_registry import METRICS

_SHELLS = ("bash", "zsh", "tcsh")
_MISSING = "shell completion needs shtab: pip install shtab"


def add_commands(commands: Any) -> None:
    """Add the command to the parser."""
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


def _completion(options: argparse.Namespace, rest: Sequence[str]) -> int:
    refuse(options, rest)
    from pytest_tfperf.cli.main import command_parser  # all commands

    try:
        import shtab
    except ImportError as error:
        raise TfperfError(_MISSING) from error
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
