"""One option of a run: a command-line flag, an ini value, or both."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, overload

import pytest

T = TypeVar("T")

SWITCH = "switch"
TEXT = "text"
CHOICE = "choice"
PATH = "path"
PATHS = "paths"
ADDRESS = "address"
LIMITS = "limits"
COUNT = "count"
STEPS = "steps"
SECONDS = "seconds"
SHARE = "share"
TPU = "TPU generation"
"""Kinds of values; `option_values` has a parser for each."""

_INI_TYPES: dict[str, Any] = {
    LIMITS: "linelist",
    COUNT: str | int,
    STEPS: str | int,
    SECONDS: str | float,
    SHARE: str | float,
}
"""Types that a value may have in a native TOML table; text if a kind is not here."""
_HAS_UNIONS = pytest.version_tuple >= (9, 2)
"""True if an ini value may have one of several types."""


class Option(Generic[T]):
    """
    A flag, an ini value, or both, as an attribute of `Options`.

    Args:
        kind: Kind of the value, e.g. `STEPS`.
        default: Value if the user sets none.
        flag: Command-line flag, e.g. "--tfperf-budget".
        ini: Name of the ini value.
        help: Text of `--help` and of the documentation.
        shown: The default as users read it; empty if the option is off by default.
        header: Phrase for pytest's header when the flag is given.
        least: Smallest number of steps that is valid.
        metavar: Name of the flag's value in `--help`.
        choices: Values that the option takes.
    """

    def __init__(
        self,
        kind: str,
        default: T,
        *,
        flag: str = "",
        ini: str = "",
        help: str,  # noqa: A002  # the name that pytest uses
        shown: str = "",
        header: str = "",
        least: int = 1,
        metavar: str | None = None,
        choices: tuple[str, ...] | None = None,
    ) -> None:
        self.name = ""
        self.kind, self.default, self.flag, self.ini = kind, default, flag, ini
        self.help, self.shown, self.header, self.least = help, shown, header, least
        self.metavar, self.choices = metavar, choices

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, options: None, owner: type) -> Option[T]: ...

    @overload
    def __get__(self, options: object, owner: type) -> T: ...

    def __get__(self, options: object, owner: type) -> Option[T] | T:
        return self if options is None else self.default  # values set are in __dict__

    @property
    def description(self) -> str:
        """The help text with the default."""
        return f"{self.help} (default: {self.shown})" if self.shown else self.help

    def add_to(self, parser: pytest.Parser, group: pytest.OptionGroup) -> None:
        """Add the flag and the ini value to pytest's parser."""
        if self.kind == SWITCH:
            group.addoption(self.flag, action="store_true", help=self.description)
        elif self.flag:
            action = "append" if self.kind == PATHS else "store"
            arguments = {"metavar": self.metavar, "choices": self.choices}
            given = {name: value for name, value in arguments.items() if value is not None}
            group.addoption(self.flag, action=action, help=self.description, **given)
        if self.ini:
            ini_type: Any = _INI_TYPES.get(self.kind, str)
            if not _HAS_UNIONS and self.kind != LIMITS:
                ini_type = "string"
            parser.addini(self.ini, self.description, type=ini_type, default=None)

    def flag_value(self, config: pytest.Config) -> Any:
        """Return the value of the flag, or None if it was not given."""
        if not self.flag:
            return None
        value = getattr(config.option, self.flag[2:].replace("-", "_"))
        return None if value is False else value

    def ini_value(self, config: pytest.Config) -> Any:
        """Return the ini value as pytest read it, or None if it is not set."""
        if not self.ini:
            return None
        try:
            value = config.getini(self.ini)
        except TypeError:  # a number in [tool.pytest], under pytest 9.0 or 9.1
            value = config._inicfg[self.ini].value  # private: _pytest/config/__init__.py there
        value = value.strip() if isinstance(value, str) else value
        return None if value in ("", []) else value

    def is_given(self, config: pytest.Config) -> bool:
        """Return whether the flag or the ini value is set."""
        return self.flag_value(config) is not None or self.ini_value(config) is not None
