"""Values of the options: what a user gave, parsed by the kind of the option."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from itertools import pairwise
from os import environ
from pathlib import Path
from typing import Any

import pytest

from pytest_tfperf.capture.plan import Plan
from pytest_tfperf.checks.arguments import parse_limit_lines, parse_steps, parse_tolerance
from pytest_tfperf.errors import LimitError
from pytest_tfperf.metric_registry import METRICS, Metric
from pytest_tfperf.plugin.options import (
    ADDRESS,
    CHOICE,
    COUNT,
    INI_PREFIX,
    LIMITS,
    PATH,
    PATHS,
    REPORT_SUFFIXES,
    SECONDS,
    SHARE,
    STEPS,
    SWITCH,
    TABLE,
    TEXT,
    TPU,
    Option,
    Options,
    unknown_names,
)
from pytest_tfperf.plugin.workers import is_worker
from pytest_tfperf.quantities import SECONDS as SECONDS_UNIT
from pytest_tfperf.quantities import parse_quantity
from pytest_tfperf.tpu.tiles import generation

_OF_EXTRA = {"history": ("duckdb", "fsspec"), "postgresql": ("sqlalchemy", "psycopg")}
"""Packages that a history needs, by the extra that installs them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An option that the user set."""

    option: Option[Any]
    value: Any
    """Text of the command line or of an ini file, or a number from a native TOML table."""
    source: str
    """The flag or ini value, for messages."""
    folder: Path
    """Folder that relative paths start from: the working directory or the rootdir."""
    metrics: Mapping[str, Metric]


def read_options(config: pytest.Config, metrics: Mapping[str, Metric] = METRICS) -> Options:
    """
    Read flags and ini values, flags first; raises LimitError, which names the flag or value, for
    what cannot be understood or used together, or a value that pytest took for a path of tests.
    """
    _refuse_unknown_names(config)
    _refuse_contradictions(config)
    if not is_worker(config):
        _refuse_moved_project(config)
    values = {}
    for name, option in TABLE.items():
        given = _given(option, config, metrics)
        if given is not None:
            values[name] = _parsed(given)
    on_github = environ.get("GITHUB_ACTIONS") == "true"
    summary = environ.get("GITHUB_STEP_SUMMARY")
    return Options(
        **values,
        rootdir=config.rootpath,
        workspace=Path(environ.get("GITHUB_WORKSPACE") or config.rootpath) if on_github else None,
        summary=Path(summary) if summary else None,
    )


def plan_of(options: Options) -> Plan:
    """Return the windows of a profile, for tests that set none."""
    names = ("warmup", "steps", "trace_steps", "max_seconds")
    chosen = {name: getattr(options, name) for name in names}
    return Plan(**{name: value for name, value in chosen.items() if value is not None})


def _refuse_unknown_names(config: pytest.Config) -> None:
    """Check the names of ini values; pytest only warns of one that it does not know."""
    for name in unknown_names(config):
        raise LimitError(f"unknown ini value {name}; {_nearest_option(name)}")


def _nearest_option(name: str) -> str:
    """Return what may have been meant by an ini value: a flag, the nearest ini value, or any."""
    flag = "--" + name.replace("_", "-")
    if any(option.flag == flag for option in TABLE.values()):
        return f"{flag} is only a flag, which addopts may set"
    valid = [option.ini for option in TABLE.values() if option.ini]
    endings = {ini.removeprefix(INI_PREFIX): ini for ini in valid}
    close = get_close_matches(name.removeprefix(INI_PREFIX), endings, 1)
    return f"did you mean {endings[close[0]]}?" if close else f"valid: {', '.join(valid)}"


def _refuse_contradictions(config: pytest.Config) -> None:
    """Check flags that exclude each other, and the suffixes of reports."""
    option = config.option
    if option.tfperf_update or option.tfperf_update_new:
        for flag, value in (
            ("--tfperf-baseline", option.tfperf_baseline),
            ("--tfperf-against", option.tfperf_against),
            ("--tfperf-against-python", option.tfperf_against_python),
        ):
            if value:
                raise LimitError(
                    "--tfperf-update records and compares nothing: "
                    f"it cannot be given together with {flag}"
                )
    for path in option.tfperf_report or ():
        if path and Path(path).suffix.lower() not in REPORT_SUFFIXES:
            raise LimitError(
                f"--tfperf-report {path}: the file ending must be one of "
                f"{', '.join(REPORT_SUFFIXES)}"
            )


def _refuse_moved_project(config: pytest.Config) -> None:
    """
    Check that no flag's value took pytest out of the project that it was started in. pytest looks
    for the rootdir and its ini file before it knows the flags of plugins. Then a value that is a
    word of its own counts as a path of tests if it exists (docs.pytest.org, "Finding the rootdir").
    The limits and settings of the project's ini file would be lost silently.
    """
    start, ini, root = config.invocation_params.dir, config.inipath, config.rootpath
    is_left = not (root.is_relative_to(start) if ini is None else start.is_relative_to(ini.parent))
    if not is_left or config.option.inifilename:
        return
    flags = {option.flag for option in TABLE.values() if option.flag and option.kind != SWITCH}
    words = [*shlex.split(environ.get("PYTEST_ADDOPTS", "")), *config.invocation_params.args]
    taken = {
        value: f"{flag}={value}"
        for flag, value in pairwise(map(str, words))
        if flag in flags and (start / value).exists()
    }
    if taken:
        raise LimitError(
            f"pytest would run in {root} with {ini.name if ini else 'no ini file'} instead of "
            f"{start}, since it takes {' and '.join(taken)} for a path of tests. Write "
            f"{' '.join(taken.values())}, with an equals sign"
        )


def _given(
    option: Option[Any], config: pytest.Config, metrics: Mapping[str, Metric]
) -> Given | None:
    """Return what the user set an option to, or None if it is not set."""
    value, source, folder = option.flag_value(config), option.flag, config.invocation_params.dir
    if value is None:
        value, source, folder = option.ini_value(config), f"ini {option.ini}", config.rootpath
    if value is None:
        return None
    if value == "" or (isinstance(value, list) and "" in value):  # as of an unset variable
        raise LimitError(f"{source}: the value is empty")
    return Given(option=option, value=value, source=source, folder=folder, metrics=metrics)


def _parsed(given: Given) -> Any:
    try:
        return PARSERS[given.option.kind](given)
    except ValueError as error:
        raise LimitError(f"{given.source}: {error}") from error


def _choice(given: Given) -> str:
    choices = given.option.choices or ()
    if given.value not in choices:
        raise ValueError(f"{given.value!r} is neither {' nor '.join(choices)}")
    return str(given.value)


def _address(given: Given) -> str:
    """Return a URL as it is, and a folder as a path, if the packages of a history are there."""
    text = str(given.value)
    before, is_url, _ = text.partition("://")
    scheme = before.rpartition("::")[2].partition("+")[0] if is_url else ""
    extra = "postgresql" if scheme in ("postgresql", "postgres") else "history"
    for package in _OF_EXTRA[extra]:
        if find_spec(package) is None:
            raise ValueError(
                f"it needs {package}: install it with pip install 'pytest-tfperf[{extra}]'"
            )
    if scheme and extra == "history":
        from fsspec.registry import known_implementations

        known = known_implementations.get(scheme)
        if known and find_spec(known["class"].partition(".")[0]) is None:
            raise ValueError(f"{scheme}:// needs a package of its own: {known['err']}")
    return text if is_url else str(given.folder / text)


def _limits(given: Given) -> dict[str, str]:
    lines = [given.value] if isinstance(given.value, str) else given.value
    return parse_limit_lines(lines, given.source, given.metrics)


def _count(given: Given) -> int:
    if not str(given.value).isdecimal():
        raise ValueError(f"{given.value!r} is not a whole number")
    return int(given.value)


def _seconds(given: Given) -> float:
    seconds = parse_quantity(given.value, SECONDS_UNIT, bare=True)  # the option names seconds
    if seconds <= 0:
        raise ValueError(f"{given.value!r} is not above zero")
    return seconds


def _tpu(given: Given) -> str:
    try:
        return generation(str(given.value)).name
    except LimitError as error:
        raise ValueError(str(error)) from error


PARSERS: dict[str, Callable[[Given], Any]] = {
    SWITCH: lambda given: given.value,
    TEXT: lambda given: given.value,
    CHOICE: _choice,
    PATH: lambda given: given.folder / str(given.value),
    PATHS: lambda given: tuple(given.folder / path for path in given.value),
    ADDRESS: _address,
    LIMITS: _limits,
    COUNT: _count,
    STEPS: lambda given: parse_steps(given.value, given.option.least),
    SECONDS: _seconds,
    SHARE: lambda given: parse_tolerance(given.value),
    TPU: _tpu,
}
