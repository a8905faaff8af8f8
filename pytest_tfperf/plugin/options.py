"""What a pytest run asks for: its options and ini values, read once and as one frozen value."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from os import environ
from pathlib import Path
from typing import Any

import pytest

from pytest_tfperf.capture.plan import Plan
from pytest_tfperf.checks.arguments import parse_limit_lines, parse_steps
from pytest_tfperf.errors import LimitError
from pytest_tfperf.metrics import METRICS, RATIO, SECONDS, Metric, parse_quantity
from pytest_tfperf.padding.tpu import generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """
    The options of a run, from the command line or their ini twins.

    `workspace` is the repository's folder in a job of GitHub Actions, `summary` the file of its summary (docs.github.com, "Variables").
    """

    baseline: bool = False
    update: str | None = None
    against: str | None = None
    budget_s: float = 30.0
    baseline_dir: Path | None = None
    missing: str = "fail"
    only: str | None = None
    strict: bool = False
    min_checks: int = 0
    reports: tuple[Path, ...] = ()
    trace_dir: Path | None = None
    disable: bool = False
    rootdir: Path = Path()
    parallel: bool = False
    workspace: Path | None = None
    summary: Path | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    plan: Plan = field(default_factory=Plan)


def read_options(
    config: pytest.Config, n_workers: int, metrics: Mapping[str, Metric] = METRICS
) -> Options:
    """
    The options of a run with so many xdist workers, and these metrics.

    Raises:
        LimitError: If a value cannot be understood.
    """
    option = config.option
    return Options(
        baseline=option.tfperf_baseline,
        update="all" if option.tfperf_update else "new" if option.tfperf_update_new else None,
        against=option.tfperf_against,
        budget_s=_parsed(
            "tfperf_budget", option.tfperf_budget or ini(config, "tfperf_budget") or "30", _seconds
        ),
        baseline_dir=_folder(config, "baseline_dir"),
        missing=_missing(config),
        only=option.tfperf_only,
        strict=option.tfperf_strict,
        min_checks=_parsed(
            "tfperf_min_checks",
            option.tfperf_min_checks or ini(config, "tfperf_min_checks") or "0",
            _count,
        ),
        reports=tuple(Path(config.invocation_params.dir, path) for path in option.tfperf_report),
        trace_dir=_folder(config, "trace_dir"),
        disable=option.tfperf_disable,
        rootdir=config.rootpath,
        parallel=n_workers > 1,
        workspace=Path(environ.get("GITHUB_WORKSPACE") or config.rootpath)
        if environ.get("GITHUB_ACTIONS") == "true"
        else None,
        summary=Path(environ["GITHUB_STEP_SUMMARY"])
        if environ.get("GITHUB_STEP_SUMMARY")
        else None,
        limits=_limits(config, metrics),
        plan=_plan(config),
    )


def ini(config: pytest.Config, name: str) -> str:
    """An ini value as text, empty where it is not set."""
    return str(config.getini(name) or "").strip()


def _limits(config: pytest.Config, metrics: Mapping[str, Metric]) -> dict[str, Any]:
    lines = config.getini("tfperf_limits")
    limits: dict[str, Any] = dict(
        parse_limit_lines(
            [lines] if isinstance(lines, str) else lines, "ini tfperf_limits", metrics
        )
    )
    if regression := ini(config, "tfperf_max_regression"):
        limits["max_regression"] = _parsed(
            "tfperf_max_regression", regression, lambda text: parse_quantity(text, RATIO)
        )
    if tpu := ini(config, "tfperf_tpu"):
        limits["tpu"] = _parsed("tfperf_tpu", tpu, lambda text: generation(text).name)
    return limits


def _plan(config: pytest.Config) -> Plan:
    given = {name: ini(config, f"tfperf_{name}") for name in ("warmup", "steps", "trace_steps")}
    plan: dict[str, Any] = {
        name: _parsed(
            f"tfperf_{name}",
            text,
            functools.partial(parse_steps, least=0 if name == "warmup" else 1),
        )
        for name, text in given.items()
        if text
    }
    if seconds := ini(config, "tfperf_max_seconds"):
        plan["max_seconds"] = _parsed(
            "tfperf_max_seconds", seconds, lambda text: parse_quantity(text, SECONDS)
        )
    return Plan(**plan)


def _missing(config: pytest.Config) -> str:
    missing: str = config.option.tfperf_missing or ini(config, "tfperf_missing") or "fail"
    if missing not in ("fail", "allow"):
        raise LimitError(f"ini tfperf_missing: {missing!r} is neither fail nor allow")
    return missing


def _folder(config: pytest.Config, name: str) -> Path | None:
    """A folder: from the command line relative to where pytest was called, from an ini value to the rootdir."""
    given = getattr(config.option, f"tfperf_{name}")
    if given:
        return Path(config.invocation_params.dir, given)
    stored = ini(config, f"tfperf_{name}")
    return Path(config.rootpath, stored) if stored else None


def _parsed(name: str, text: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(text)
    except (LimitError, ValueError) as error:
        raise LimitError(f"{name}: {error}") from error


def _seconds(text: str) -> float:
    seconds = parse_quantity(text, SECONDS)
    if seconds <= 0:
        raise ValueError(f"{text!r} is not above zero")
    return seconds


def _count(text: str) -> int:
    if not text.isdigit():
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)
