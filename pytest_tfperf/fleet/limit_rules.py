"""
Limits for many traces, from a TOML file.

    max_input_bound = "5%"

    [[rules]]
    match = "*/eval_*/*"
    max_input_bound = "20%"

Limits at the top hold for every trace. Those of a section hold for the traces whose address its
glob matches; they take the place of limits of the same name above.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pytest_tfperf.checks.arguments import Wanted, parse_limit_lines
from pytest_tfperf.checks.limits import Limit
from pytest_tfperf.errors import LimitError
from pytest_tfperf.files import open_regular
from pytest_tfperf.json_file import plain_strings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest needs it there

_SECTIONS, _MATCH = "rules", "match"
_MOST_BYTES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSection:
    """Limits of the traces that a glob matches."""

    glob: str
    """Glob of addresses; `*` is for any characters, slashes too."""
    arguments: Mapping[str, str]
    """Limits by the name of the marker's argument."""

    def matches(self, name: str) -> bool:
        """Return whether the limits hold for a trace."""
        return fnmatchcase(name, self.glob)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRules:
    """The sections of a file of limits; a later one takes the place of an earlier one."""

    sections: tuple[LimitSection, ...]
    """The sections; that of the top comes first and matches every trace."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that have a limit."""
        found = (
            limit.metric.name
            for section in self.sections
            for limit in Wanted.read(section.arguments).limits
        )
        return tuple(dict.fromkeys(found))

    def limits_of(self, name: str) -> tuple[Limit, ...]:
        """Return the limits of a trace."""
        arguments: dict[str, str] = {}
        for section in self.sections:
            if section.matches(name):
                arguments |= section.arguments
        return Wanted.read(arguments).limits

    def unused(self, names: Iterable[str]) -> list[str]:
        """Return the globs that match none of these traces."""
        known = list(names)
        return [
            section.glob
            for section in self.sections
            if section.arguments and not any(map(section.matches, known))
        ]


def read_rules(path: Path) -> LimitRules:
    """
    Read a file of limits.

    Raises:
        LimitError: If it cannot be read, or has something else than limits, or none.
    """
    try:
        with open_regular(path) as file:
            content = tomllib.loads(file.read(_MOST_BYTES).decode("utf-8"))
    except OSError as error:
        raise LimitError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError, TOMLDecodeError
        raise LimitError(f"{path}: not TOML: {' '.join(str(error).split())}") from error
    content = plain_strings(content)
    sections = content.pop(_SECTIONS, [])
    if not isinstance(sections, list) or not all(isinstance(one, dict) for one in sections):
        raise LimitError(f"{path}: write [[rules]], with two brackets, above each section")
    found = [
        LimitSection(glob="*", arguments=_arguments(content, str(path))),
        *(_section(one, f"{path}: rule {n}") for n, one in enumerate(sections, 1)),
    ]
    if not any(section.arguments for section in found):
        raise LimitError(f'{path}: no limit; write some, such as max_input_bound = "5%"')
    return LimitRules(sections=tuple(found))


def _section(content: Mapping[str, Any], where: str) -> LimitSection:
    glob = content.get(_MATCH)
    if not isinstance(glob, str) or not glob:
        raise LimitError(f'{where}: give the glob of its traces, such as match = "*/eval_*/*"')
    limits = {name: value for name, value in content.items() if name != _MATCH}
    if not limits:
        raise LimitError(f'{where}: no limit; write some, such as max_input_bound = "5%"')
    return LimitSection(glob=glob, arguments=_arguments(limits, where))


def _arguments(content: Mapping[str, Any], where: str) -> dict[str, str]:
    """
    Read limits by name.

    Args:
        content: Values by name.
        where: Name of their origin for errors.
    """
    return parse_limit_lines([_line(*one, where) for one in content.items()], where)


def _line(name: str, value: object, where: str) -> str:
    """
    Return a limit as a line of text.

    Args:
        name: Name of the limit.
        value: Its value.
        where: Name of its origin for errors.

    Raises:
        LimitError: If a limit can have no such value.
    """
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number and (not isinstance(value, str) or "," in value):
        raise LimitError(f'{where}: {name} needs one number or text, such as "5%", not {value!r}')
    return f"{name} = {value}"
