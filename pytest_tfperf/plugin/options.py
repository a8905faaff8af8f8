"""
The options of a run: one table of command-line flags and ini values, and their frozen value.

Each option is declared once, as a field of `Options`. pytest's parser, the value, the header of a
run and docs/options.md are made from the table. pytest loads this module in every run, so it
imports only pytest and the standard library; parsers import what they need when they are called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from os import environ
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfperf.errors import LimitError
from pytest_tfperf.plugin import option_parsers as parsers

if TYPE_CHECKING:
    from pytest_tfperf.capture.plan import Plan
    from pytest_tfperf.metrics import Metric

REPORT_SUFFIXES = (".json", ".html", ".md", ".csv")
LINES = "linelist"
"""pytest's name for an ini value with one text a line."""
_HAS_UNIONS = pytest.version_tuple >= (9, 2)
"""True if an ini value may have one of several types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One row of the table."""

    flag: str = ""
    """Command-line flag; empty if there is none."""
    ini: str = ""
    """Name of the ini value; empty if there is none."""
    help: str
    """Text of `--help` and of the documentation."""
    parse: Callable[[parsers.Given], Any]
    """Turns the text or number that the user gave into the value. Raises ValueError."""
    argument: Mapping[str, Any]
    """Further arguments of the argument parser: `action`, `metavar`, `choices`."""
    ini_type: Any = str
    """Types that the ini value may have in a native TOML table; or `LINES`."""
    default: str = ""
    """The default as users read it; empty if the option is off by default."""
    header: str = ""
    """Phrase for pytest's header when the flag is given."""

    @property
    def description(self) -> str:
        """Return the help text with the default."""
        return f"{self.help} (default: {self.default})" if self.default else self.help

    def flag_value(self, config: pytest.Config) -> Any:
        """Return the value of the flag, or None if it was not given."""
        if not self.flag:
            return None
        return getattr(config.option, self.flag[2:].replace("-", "_")) or None

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


def _option(
    value: Any,
    *,
    help: str,  # noqa: A002  # as argparse and pytest call it
    parse: Callable[[parsers.Given], Any] = parsers.as_given,
    flag: str = "",
    ini: str = "",
    ini_type: Any = str,
    default: str = "",
    header: str = "",
    **argument: Any,
) -> Any:
    """Declare a field of `Options` with this default value; see `Option` for the rest."""
    option = Option(
        flag=flag,
        ini=ini,
        help=help,
        parse=parse,
        argument=argument,
        ini_type=ini_type,
        default=default,
        header=header,
    )
    return field(default=value, metadata={Option: option})


def _switch(flag: str, text: str, header: str = "") -> Any:
    """Declare a flag without a value."""
    return _option(False, flag=flag, help=text, header=header, action="store_true")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a run, and the surroundings that decide what they mean."""

    baseline: bool = _switch(
        "--tfperf-baseline",
        "compare with the stored baseline; a test without an entry fails",
        "comparing with the stored baseline",
    )
    update_all: bool = _switch(
        "--tfperf-update",
        "record every test that passes; compare nothing",
        "recording a new baseline",
    )
    update_new: bool = _switch(
        "--tfperf-update-new",
        "record what is missing from the baseline; compare nothing",
        "recording what is missing from the baseline",
    )
    baseline_dir: Path | None = _option(  # noqa: RUF009  # declares a field
        None,
        flag="--tfperf-baseline-dir",
        ini="tfperf_baseline_dir",
        metavar="DIR",
        parse=parsers.path,
        default="__tfperf__/ beside each test file",
        help="keep baselines under DIR",
    )
    against: str | None = _option(
        None,
        flag="--tfperf-against",
        metavar="REF",
        help="compare against a git ref; both versions run alternately in two processes",
    )
    budget_s: float = _option(
        30.0,
        flag="--tfperf-budget",
        ini="tfperf_budget",
        metavar="S",
        parse=parsers.positive_seconds,
        ini_type=str | float,
        default="30",
        help="seconds of alternating runs for each profile, under --tfperf-against",
    )
    missing: str = _option(
        "fail",
        flag="--tfperf-missing",
        ini="tfperf_missing",
        choices=("fail", "allow"),
        parse=parsers.missing,
        default="fail",
        help="treatment of a missing baseline entry: the test fails, or passes",
    )
    only: str | None = _option(
        None,
        flag="--tfperf-only",
        choices=("structural", "timing"),
        help="check only machine-independent metrics, or only timings",
    )
    strict: bool = _switch("--tfperf-strict", "fail checks that could not be decided")
    min_checks: int = _option(
        0,
        flag="--tfperf-min-checks",
        ini="tfperf_min_checks",
        metavar="N",
        parse=parsers.count,
        ini_type=str | int,
        default="0",
        help="exit with status 1 if fewer than N checks were decided",
    )
    reports: tuple[Path, ...] = _option(
        (),
        flag="--tfperf-report",
        action="append",
        metavar="PATH",
        parse=parsers.paths,
        help=f"write the results to PATH ({', '.join(REPORT_SUFFIXES)}); may be repeated",
    )
    trace_dir: Path | None = _option(  # noqa: RUF009  # declares a field
        None,
        flag="--tfperf-trace-dir",
        ini="tfperf_trace_dir",
        metavar="DIR",
        parse=parsers.path,
        help="keep traces under DIR, where XProf and TensorBoard can open them",
    )
    disable: bool = _switch(
        "--tfperf-disable",
        "run each profiled step once and skip its test",
        "disabled, profiled tests are skipped",
    )
    limits: Mapping[str, str] | None = _option(
        None,
        ini="tfperf_limits",
        ini_type=LINES,
        parse=parsers.limits,
        help="limits for every profiled test, one a line: max_input_bound = 5%",
    )
    max_regression: float | None = _option(
        None,
        ini="tfperf_max_regression",
        parse=parsers.share,
        ini_type=str | float,
        help="tolerated slow-down of step_time, for tests that set none: 5%",
    )
    warmup: int | None = _option(
        None,
        ini="tfperf_warmup",
        parse=parsers.warmup_steps,
        ini_type=str | int,
        default="10",
        help="steps before the clock starts",
    )
    steps: int | None = _option(
        None,
        ini="tfperf_steps",
        parse=parsers.steps,
        ini_type=str | int,
        default="50, and more if they are short",
        help="timed steps",
    )
    trace_steps: int | None = _option(
        None,
        ini="tfperf_trace_steps",
        parse=parsers.steps,
        ini_type=str | int,
        default="20",
        help="traced steps",
    )
    max_seconds: float | None = _option(
        None,
        ini="tfperf_max_seconds",
        parse=parsers.seconds,
        ini_type=str | float,
        default="30",
        help="longest time that the windows of a profile may take after its first step",
    )
    tpu: str | None = _option(
        None,
        ini="tfperf_tpu",
        parse=parsers.tpu,
        default="v5e",
        help="TPU generation that padding is predicted for",
    )
    rootdir: Path = Path()
    """pytest's root folder."""
    parallel: bool = False
    """True if several xdist workers run the tests."""
    workspace: Path | None = None
    """Folder of the repository in a job of GitHub Actions (docs.github.com, "Variables")."""
    summary: Path | None = None
    """File of the job's summary in GitHub Actions."""

    @property
    def update(self) -> str | None:
        """What is recorded in the baseline: "all", "new" or None."""
        return "all" if self.update_all else "new" if self.update_new else None

    @property
    def plan(self) -> Plan:
        """The windows of a profile, for tests that set none."""
        from pytest_tfperf.capture.plan import Plan

        names = ("warmup", "steps", "trace_steps", "max_seconds")
        chosen = {name: getattr(self, name) for name in names}
        return Plan(**{name: value for name, value in chosen.items() if value is not None})

    @property
    def marker_arguments(self) -> dict[str, Any]:
        """Arguments of the marker that hold for every test, behind its own."""
        own = {"max_regression": self.max_regression, "tpu": self.tpu}
        chosen = {name: value for name, value in own.items() if value is not None}
        return {**(self.limits or {}), **chosen}


TABLE: Mapping[str, Option] = {
    row.name: row.metadata[Option] for row in fields(Options) if row.metadata
}
"""The options by their field of `Options`."""


def add_options(parser: pytest.Parser) -> None:
    """Add every flag and ini value to pytest's parser."""
    group = parser.getgroup("tfperf", "performance of TensorFlow code (pytest-tfperf)")
    for option in TABLE.values():
        if option.flag:
            group.addoption(option.flag, help=option.description, **option.argument)
        if option.ini:
            text = f"see {option.flag}" if option.flag else option.description
            ini_type: Any = option.ini_type if _HAS_UNIONS or option.ini_type == LINES else "string"
            parser.addini(option.ini, text, type=ini_type, default=None)


def is_used(config: pytest.Config) -> bool:
    """Return whether any flag or ini value is set."""
    return any(
        option.flag_value(config) or option.ini_value(config) is not None
        for option in TABLE.values()
    )


def read_options(
    config: pytest.Config, n_workers: int, metrics: Mapping[str, Metric] | None = None
) -> Options:
    """
    Read flags and ini values; a flag goes before the ini value.

    Args:
        config: Configuration of the run.
        n_workers: Number of xdist workers, 0 without xdist.
        metrics: All metrics of the run; by default the built-in ones.

    Raises:
        LimitError: If a value cannot be understood; the message names its flag or ini value.
    """
    from pytest_tfperf.metrics import METRICS

    rows = METRICS if metrics is None else metrics
    values = {name: _read(option, config, rows) for name, option in TABLE.items()}
    on_github = environ.get("GITHUB_ACTIONS") == "true"
    summary = environ.get("GITHUB_STEP_SUMMARY")
    return Options(
        **{name: value for name, value in values.items() if value is not None},
        rootdir=config.rootpath,
        parallel=n_workers > 1,
        workspace=Path(environ.get("GITHUB_WORKSPACE") or config.rootpath) if on_github else None,
        summary=Path(summary) if summary else None,
    )


def _read(option: Option, config: pytest.Config, metrics: Mapping[str, Metric]) -> Any:
    """Return the parsed value of an option, or None if it is not set."""
    value, source, folder = option.flag_value(config), option.flag, config.invocation_params.dir
    if value is None:
        value, source, folder = option.ini_value(config), f"ini {option.ini}", config.rootpath
    if value is None:
        return None
    try:
        return option.parse(parsers.Given(value, source, folder, metrics))
    except ValueError as error:
        raise LimitError(f"{source}: {error}") from error
