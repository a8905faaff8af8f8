"""
Parsers of option values: what a user wrote, turned into the value that the plugin works with.

pytest loads this module in every run, so parsers import what they need when they are called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_tfperf.errors import LimitError

if TYPE_CHECKING:
    from pytest_tfperf.metrics import Metric


@dataclass(frozen=True, slots=True)
class Given:
    """An option as the user gave it."""

    value: Any
    """Text of the command line or of an ini file, or a number from a native TOML table."""
    source: str
    """The flag or ini value, for messages."""
    folder: Path
    """Folder that relative paths start from: the working directory or the rootdir."""
    metrics: Mapping[str, Metric]
    """All metrics of the run."""


def limits(given: Given) -> dict[str, str]:
    """Parse lines such as `max_input_bound = 5%` into arguments of the marker."""
    from pytest_tfperf.checks.arguments import parse_limit_lines

    lines = [given.value] if isinstance(given.value, str) else given.value
    return parse_limit_lines(lines, given.source, given.metrics)


def share(given: Given) -> float:
    """Parse a share such as 0.05 or "5%"."""
    from pytest_tfperf.metrics import RATIO, parse_quantity

    return parse_quantity(given.value, RATIO)


def seconds(given: Given) -> float:
    """Parse a duration in seconds, or with a unit."""
    from pytest_tfperf.metrics import SECONDS, parse_quantity

    return parse_quantity(given.value, SECONDS)


def positive_seconds(given: Given) -> float:
    """Parse a duration above zero."""
    number = seconds(given)
    if number <= 0:
        raise ValueError(f"{given.value!r} is not above zero")
    return number


def steps(given: Given) -> int:
    """Parse a number of steps, at least one."""
    from pytest_tfperf.checks.arguments import parse_steps

    return parse_steps(given.value)


def warmup_steps(given: Given) -> int:
    """Parse a number of steps, which may be zero."""
    from pytest_tfperf.checks.arguments import parse_steps

    return parse_steps(given.value, least=0)


def count(given: Given) -> int:
    """Parse a whole number."""
    if not str(given.value).isdecimal():
        raise ValueError(f"{given.value!r} is not a whole number")
    return int(given.value)


def missing(given: Given) -> str:
    """Parse the treatment of a missing baseline entry."""
    if given.value not in ("fail", "allow"):
        raise ValueError(f"{given.value!r} is neither fail nor allow")
    return str(given.value)


def tpu(given: Given) -> str:
    """Parse the name of a TPU generation."""
    from pytest_tfperf.padding.tpu import generation

    try:
        return generation(str(given.value)).name
    except LimitError as error:
        raise ValueError(str(error)) from error


def path(given: Given) -> Path:
    """Parse a path, relative to the folder that it was given in."""
    return given.folder / str(given.value)


def paths(given: Given) -> tuple[Path, ...]:
    """Parse paths, relative to the folder that they were given in."""
    return tuple(given.folder / path for path in given.value)


def as_given(given: Given) -> Any:
    """Return the text of an option that needs no parsing."""
    return given.value
