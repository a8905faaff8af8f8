"""The command `tfperf doctor`, which examines the machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pytest_tfperf.cli.common import FAILED, GOOD, add_command, json_text, reading, time_above_zero
from pytest_tfperf.cli.progress import Progress
from pytest_tfperf.cli.terminal import (
    Line,
    Screen,
    Span,
    labelled,
    line,
    number_table,
    this_screen,
    write_out,
)

if TYPE_CHECKING:
    from pytest_tfperf.doctor.sections import Section

_INDENT = "  "


def add_commands(commands: Any) -> None:
    """Add the command to the parser."""
    doctor = add_command(
        commands,
        "doctor",
        _doctor,
        "check how well this machine can profile and compare",
        (
            "Say what this machine is fit for: check the profiler, and run two processes of the "
            "same code alternately to find the noise and the smallest slow-down detectable. "
            "Takes about 40 s, minutes on a busy machine, and needs TensorFlow or JAX. Exit status "
            "1 if one of its checks failed, 2 without both."
        ),
        "--seconds 20",
    )
    doctor.add_argument(
        "--seconds",
        type=reading(lambda text: time_above_zero(text, bare=True)),
        default=8.0,
        metavar="S",
        help="seconds in which two processes of the same code take turns with pinned cores, and "
        "again with any core; their starts and the other checks take longer (default: 8)",
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON object instead")


def _doctor(options: argparse.Namespace) -> int:
    from pytest_tfperf.doctor.examine import examine  # numpy, a framework
    from pytest_tfperf.doctor.sections import sections_json

    found: list[Section] = []
    with closing(Progress()) as progress:
        for section in examine(options.seconds, progress.phase):
            found.append(section)
            if not options.json:
                progress.close()
                if len(found) > 1:
                    write_out("")
                write_out(*section_view(section, this_screen()))
                sys.stdout.flush()
    if options.json:
        print(json_text(sections_json(found)))
    return FAILED if any(section.failed for section in found) else GOOD


def section_view(section: Section, screen: Screen) -> Iterator[str | Line]:
    """Yield a section: its title, rows, lines and advice."""
    yield line((section.title, "bold"))
    if section.titles:
        yield from number_table(section.titles, section.rows, screen.width)
    elif section.rows:
        yield from labelled([(f"{_INDENT}{name} ", _answer(value)) for name, value in section.rows])
    yield from (f"{_INDENT}{text}" for text in section.lines)
    for advice in section.advice:
        yield line((f"{_INDENT}try: ", "bold yellow"), advice)


def _answer(text: str) -> Span:
    """Return the answer of a check, coloured."""
    return text, {"FAILED": "bold red", "ok": "green"}.get(text.partition(":")[0], "")
