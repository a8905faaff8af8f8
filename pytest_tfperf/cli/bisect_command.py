"""The command `tfperf bisect`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from pytest_tfperf.cli.output import add_command
from pytest_tfperf.report.bisect_status import run_for_bisect


def add_commands(commands: Any) -> None:
    """Add the command to the parser."""
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
    bisect.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="-- ARGS", help="arguments of pytest"
    )


def _bisect(options: argparse.Namespace, rest: Sequence[str]) -> int:
    words = [*rest, *options.arguments]  # without --, argparse stops at options that it knows not
    return run_for_bisect(words[1:] if words[:1] == ["--"] else words)
