"""The command `tfperf doctor`, which examines the machine."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from typing import Any

from pytest_tfperf.cli.output import FAILED, GOOD, add_command, refuse


def add_commands(commands: Any) -> None:
    """Add the command to the parser."""
    doctor = add_command(
        commands,
        "doctor",
        _doctor,
        "check how well this machine can profile and compare",
        (
            "Show the machine class, check the profiler, and run two processes of the same code "
            "alternately to find the noise and the minimum detectable change. Takes 40 s, or a "
            "minute on a busy machine, and needs TensorFlow. Exit status 1 if one of its checks "
            "failed, 2 without TensorFlow."
        ),
        "--seconds 20",
    )
    doctor.add_argument(
        "--seconds",
        type=_number_above_zero,
        default=8.0,
        metavar="S",
        help="seconds of turns with pinned cores, and again with any core (default: 8)",
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON object instead")


def _doctor(options: argparse.Namespace, rest: Sequence[str]) -> int:
    refuse(options, rest)
    from pytest_tfperf.doctor.examine import examine  # numpy, TensorFlow
    from pytest_tfperf.doctor.sections import render_section, sections_json

    found = []
    for section in examine(options.seconds):
        found.append(section)
        if not options.json:
            print(render_section(section), end="\n\n", flush=True)
    if options.json:
        print(json.dumps(sections_json(found), indent=1, allow_nan=False))
    return FAILED if any(section.failed for section in found) else GOOD


def _number_above_zero(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number above zero")
    return number
