"""Common parts of the commands: exit status, options, kinds of files, JSON and pages."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from pytest_tfperf.errors import TfperfError
from pytest_tfperf.files import replace_file
from pytest_tfperf.json_file import indented_json
from pytest_tfperf.quantities import SECONDS, parse_quantity
from pytest_tfperf.report.run_file import read_run
from pytest_tfperf.results import BROKEN, FORMAT, Check, Profile, Verdict
from pytest_tfperf.runs import Run
from pytest_tfperf.text import for_terminal
from pytest_tfperf.trace.logdir import ENDING, PACKED
from pytest_tfperf.values import Json

T = TypeVar("T")
GOOD, FAILED, USAGE, UNKNOWN = 0, 1, 2, 3
TRACES = "an .xplane.pb or .xplane.pb.gz file, or a logdir, whose newest run is taken"


def add_command(
    commands: Any, name: str, run: object, short: str, long: str, example: str
) -> argparse.ArgumentParser:
    """Add a command, which `run` runs by its options, with descriptions for both helps."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=short, description=long, epilog=f"Example: tfperf {name} {example}".rstrip()
    )
    # `takes` tells which arguments that argparse does not know the command reads itself
    parser.set_defaults(run_command=run, parser=parser, takes=lambda _: False)
    return parser


def path_or_url(text: str) -> Path | str:
    """Return the path of a file or a folder, or a URL as it is."""
    return text if "://" in text else Path(text)


def reading(read: Callable[[str], T]) -> Callable[[str], T]:
    """Let argparse say why `read` refuses a value."""

    def checked(text: str) -> T:
        try:
            return read(text)
        except (TfperfError, ValueError) as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return checked


def time_above_zero(text: str, bare: bool = False) -> float:
    """Read a time, also as a bare number of seconds if allowed; ValueError for others."""
    seconds = parse_quantity(text, SECONDS, bare)
    if seconds <= 0:
        raise ValueError(f"{text} is not a time above zero")
    return seconds


def add_output(parser: argparse.ArgumentParser, more: str) -> None:
    """Add -v, which also shows `more`, and --json."""
    parser.add_argument("-v", "--verbose", action="count", default=0, help=f"also show {more}")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def refuse_other_ending(path: Path | None, what: str) -> None:
    """Raise TfperfError if a page is to be written to a file whose ending is not .html."""
    if path is not None and path.suffix.lower() != ".html":
        raise TfperfError(f"{path}: a page of {what} ends in .html")


def write_page(path: Path, page: str) -> None:
    """Write a page, and raise TfperfError if it cannot be written; an old one is then unchanged."""
    try:
        replace_file(path, page)
    except OSError as error:
        raise TfperfError(f"{path}: cannot be written: {error.strerror}") from error


def silence_libraries() -> None:
    """Let libraries of file systems log nothing, since the command says what failed itself."""
    import logging  # other commands start faster without it

    logging.getLogger().addHandler(logging.NullHandler())


def say(text: object) -> None:
    """Print a sentence for people to standard error."""
    print(for_terminal(f"tfperf: {text}"), file=sys.stderr)


def json_text(content: Json) -> str:
    """Return one JSON object as text, in which no CI system finds a command: see `text`."""
    return indented_json(content).replace("##", "#\\u0023")


def profiles_json(profiles: Iterable[Profile]) -> str:
    """Return `{"format", "profiles"}` as JSON text."""
    return json_text({"format": FORMAT, "profiles": [profile.to_json() for profile in profiles]})


def status_of(checks: Iterable[Check]) -> int:
    """Return the exit status for these checks."""
    verdicts = {check.verdict for check in checks}
    if verdicts & (BROKEN - {Verdict.UNKNOWN}):
        return FAILED
    return UNKNOWN if Verdict.UNKNOWN in verdicts else GOOD


def is_run_file(path: Path) -> bool:
    """Return whether an argument names a run file, and not a test or a trace."""
    return path.suffix == ".json" and "::" not in str(path)


def read_run_file(path: Path) -> Run:
    """Read a run file, or raise TfperfError that says what else a file is."""
    if path.is_dir() or path.name.endswith((ENDING, PACKED)):
        raise TfperfError(f"{path} is a trace, not a run file: tfperf analyze {path} shows it")
    return read_run(path)
