"""
The options of a run: one table of command-line flags and ini values, and their frozen value.

Each option is declared once, as an attribute of `Options`. pytest's parser, the value, the header
of a run and docs/reference/options.md are made from these declarations. pytest loads this module in
every run, so it imports only pytest and the standard library, and makes no dataclass, which would
take longer than all the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar, overload

import pytest

T = TypeVar("T")

INI_PREFIX = "tfperf_"
"""Begin of the names of all ini values."""
REPORT_SUFFIXES = (".json", ".html", ".md", ".csv")

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
    A flag, an ini value, or both, as an attribute of `Options`; `shown` is the default as users
    read it, `header` the phrase of pytest's header, and `least` the smallest valid number of steps.
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


class Options:
    """
    The options of a run, and its surroundings: pytest's root, and in a job of GitHub Actions the
    repository's folder and the summary's file (docs.github.com, "Variables").
    """

    baseline: Option[bool] = Option(
        SWITCH,
        False,
        flag="--tfperf-baseline",
        help="compare with the stored baseline; a test without an entry fails",
        header="comparing with the stored baseline",
    )
    update_all: Option[bool] = Option(
        SWITCH,
        False,
        flag="--tfperf-update",
        help="record every test that passes; compare nothing",
        header="recording a new baseline",
    )
    update_new: Option[bool] = Option(
        SWITCH,
        False,
        flag="--tfperf-update-new",
        help="record what is missing from the baseline; compare nothing",
        header="recording what is missing from the baseline",
    )
    record_noisy: Option[bool] = Option(
        SWITCH,
        False,
        flag="--tfperf-record-noisy",
        help="deprecated, without effect: busy runs are recorded anyway",
    )
    baseline_dir: Option[Path | None] = Option(
        PATH,
        None,
        flag="--tfperf-baseline-dir",
        ini="tfperf_baseline_dir",
        help="keep baselines under DIR",
        shown="__tfperf__/ beside each test file",
        metavar="DIR",
    )
    history: Option[str | None] = Option(
        ADDRESS,
        None,
        flag="--tfperf-history",
        ini="tfperf_history",
        help="add the run to a team's history, and take earlier step times from it: a folder, "
        "s3://, gs:// or az:// (pip install 'pytest-tfperf[history]'), or postgresql:// "
        "(pip install 'pytest-tfperf[postgresql]')",
        metavar="URL",
    )
    history_branch: Option[str] = Option(
        TEXT,
        "main",
        ini="tfperf_history_branch",
        help="branch whose runs in the history are compared with",
        shown="main",
    )
    history_project: Option[str | None] = Option(
        TEXT,
        None,
        ini="tfperf_history_project",
        help="name of the project in the history",
        shown="that of the git repository",
    )
    against: Option[str | None] = Option(
        TEXT,
        None,
        flag="--tfperf-against",
        help="compare against a git ref; both versions run alternately, in pairs of processes",
        metavar="REF",
    )
    against_python: Option[Path | None] = Option(
        PATH,
        None,
        flag="--tfperf-against-python",
        help="compare against another Python (its path, or its environment's), alone or with a ref",
        metavar="PATH",
    )
    budget_s: Option[float] = Option(
        SECONDS,
        30.0,
        flag="--tfperf-budget",
        ini="tfperf_budget",
        help="seconds for each profile of a paired run, from the first turn on",
        shown="30",
        metavar="S",
    )
    budget_total_s: Option[float | None] = Option(
        SECONDS,
        None,
        flag="--tfperf-budget-total",
        ini="tfperf_budget_total",
        help="seconds for all process starts and turns of a paired run; tests that it does not "
        "reach are not decided",
        metavar="S",
    )
    missing: Option[str] = Option(
        CHOICE,
        "fail",
        flag="--tfperf-missing",
        ini="tfperf_missing",
        help="treatment of a missing baseline entry: the test fails, or passes",
        shown="fail",
        choices=("fail", "allow"),
    )
    only: Option[str | None] = Option(
        CHOICE,
        None,
        flag="--tfperf-only",
        help="check only machine-independent metrics, or only timings",
        choices=("structural", "timing"),
    )
    strict: Option[bool] = Option(
        SWITCH,
        False,
        flag="--tfperf-strict",
        help="fail checks that were asked for and not decided, and runs in which a test with "
        "limits profiles nothing",
    )
    min_checks: Option[int] = Option(
        COUNT,
        0,
        flag="--tfperf-min-checks",
        ini="tfperf_min_checks",
        help="exit with status 1 if fewer than N checks were decided",
        shown="0",
        metavar="N",
    )
    reports: Option[tuple[Path, ...]] = Option(
        PATHS,
        (),
        flag="--tfperf-report",
        help=f"write the results to PATH ({', '.join(REPORT_SUFFIXES)}); may be repeated",
        metavar="PATH",
    )
    trace_dir: Option[Path | None] = Option(
        PATH,
        None,
        flag="--tfperf-trace-dir",
        ini="tfperf_trace_dir",
        help="keep traces under DIR, where XProf and TensorBoard can open them",
        metavar="DIR",
    )
    disable: Option[bool] = Option(
        SWITCH,
        False,
        flag="--tfperf-disable",
        help="run each profiled step once and skip its test",
        header="disabled, profiled tests are skipped",
    )
    limits: Option[Mapping[str, str] | None] = Option(
        LIMITS,
        None,
        ini="tfperf_limits",
        help="limits for every profiled test, one a line: max_input_bound = 5%",
    )
    max_regression: Option[float | None] = Option(
        SHARE,
        None,
        ini="tfperf_max_regression",
        help="tolerated slow-down of step_time, for tests that set none: 5%",
    )
    warmup: Option[int | None] = Option(
        STEPS, None, ini="tfperf_warmup", help="steps before the clock starts", shown="10", least=0
    )
    steps: Option[int | None] = Option(
        STEPS, None, ini="tfperf_steps", help="timed steps", shown="50, and more if they are short"
    )
    trace_steps: Option[int | None] = Option(
        STEPS, None, ini="tfperf_trace_steps", help="traced steps", shown="20"
    )
    lock_timeout: Option[float] = Option(
        SECONDS, 600.0, ini="tfperf_lock_timeout", help="longest wait for other tests", shown="600"
    )
    max_seconds: Option[float | None] = Option(
        SECONDS,
        None,
        ini="tfperf_max_seconds",
        help="longest time of a profile's windows after its first step, and of reading its code",
        shown="30",
    )
    try_failed: Option[bool] = Option(
        SWITCH,
        False,
        flag="--tfperf-try",
        help="try remedies where a limit breaks or a step regresses, on the same step and data, "
        "and show what each gives",
    )
    try_all: Option[bool] = Option(
        SWITCH,
        False,
        flag="--tfperf-try-all",
        help="try remedies of every profiled step",
    )
    try_seconds: Option[float] = Option(
        SECONDS,
        60.0,
        ini="tfperf_try_seconds",
        help="seconds in which remedies of a profile are tried; those of a run take ten times as "
        "many at most",
        shown="60",
    )
    tpu: Option[str | None] = Option(
        TPU,
        None,
        ini="tfperf_tpu",
        help="TPU generation that padding is predicted for",
        shown="v5e",
    )

    rootdir: Path
    workspace: Path | None
    summary: Path | None

    def __init__(
        self,
        *,
        rootdir: Path = Path(),
        workspace: Path | None = None,
        summary: Path | None = None,
        **values: Any,
    ) -> None:
        if unknown := values.keys() - TABLE.keys():
            raise TypeError(f"no such option: {', '.join(sorted(unknown))}")
        self.__dict__.update(values, rootdir=rootdir, workspace=workspace, summary=summary)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"options are frozen: {name}")

    @property
    def update(self) -> str | None:
        """The extent of recording in the baseline: "all", "new" or None."""
        return "all" if self.update_all else "new" if self.update_new else None

    @property
    def is_paired(self) -> bool:
        """True if two versions are compared."""
        return bool(self.against or self.against_python)

    @property
    def marker_arguments(self) -> dict[str, Any]:
        """Arguments of the marker that hold for every test, behind its own."""
        tolerated = self.max_regression
        percent = None if tolerated is None else f"{tolerated * 100:.12g}%"
        own = {"max_regression": percent, "tpu": self.tpu}
        chosen = {name: value for name, value in own.items() if value is not None}
        return {**(self.limits or {}), **chosen}


TABLE: Mapping[str, Option[Any]] = {
    name: option for name, option in vars(Options).items() if isinstance(option, Option)
}
"""The options by their attribute of `Options`."""


def unknown_names(config: pytest.Config) -> list[str]:
    """Return the names of ini values of this plugin that it does not have, as `tfperf_step`."""
    # private, in pytest 8.4 to 9.2; without it pytest's own warning is all that tells of them
    names: Iterable[str] = getattr(config, "_get_unknown_ini_keys", list)()
    return sorted(name for name in names if name.startswith(INI_PREFIX))


def add_options(parser: pytest.Parser) -> None:
    """Add every flag and ini value to pytest's parser."""
    group = parser.getgroup("tfperf", "performance of TensorFlow and JAX code (pytest-tfperf)")
    for option in TABLE.values():
        option.add_to(parser, group)
