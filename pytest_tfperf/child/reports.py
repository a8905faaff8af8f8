"""
A pytest of ours in a process of its own, as its parent sees it: how it is started and ended, and what its reports become here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal

import pytest

GRACE_S = 5.0
"""How long a process may take to end in order when it is told to."""

_STDERR_LINES, _REPORT_LINES = 12, 30
_FROM_COVERAGE = (
    "COVERAGE_PROCESS_START",
    "COVERAGE_PROCESS_CONFIG",
)  # with which every Python that starts is covered (coverage, control.py)
_ALIKE = ("randomly_seed",)
_OURS, _MOST_OF_OURS = (
    ("--tfperf-side=", "--tfperf-own-process="),
    4,
)  # with what `pytest_command` puts before


def pytest_command(
    config: pytest.Config, path: Sequence[str], arguments: Sequence[str]
) -> list[str]:
    """The command that runs pytest with the interpreter of this run, and this `sys.path`; nothing of it is covered."""
    start = f"import sys; sys.path[:] = {[str(entry) for entry in path]!r}; import pytest; sys.exit(pytest.main())"
    uncovered = ["--no-cov"] if config.pluginmanager.hasplugin("pytest_cov") else []
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
    return [sys.executable, *flags, "-c", start, *uncovered, *arguments]


def given_arguments(config: pytest.Config) -> list[str]:
    """The arguments of this run as they were given, also in a process of ours, whose own come before them."""
    arguments = [str(argument) for argument in config.invocation_params.args]
    ours = [
        index
        for index, argument in enumerate(arguments[:_MOST_OF_OURS])
        if argument.startswith(_OURS)
    ]
    return arguments[ours[0] + 1 :] if ours else arguments


def uncovered_environment() -> dict[str, str]:
    """The environment of this process without what lets coverage follow Python in those that it starts."""
    return {name: value for name, value in os.environ.items() if name not in _FROM_COVERAGE}


def alike_options(config: pytest.Config) -> dict[str, Any]:
    """What this run has drawn by chance for its options (pytest-randomly's seed), to be the same in its processes."""
    return {name: getattr(config.option, name) for name in _ALIKE if hasattr(config.option, name)}


def names_in_file(item: pytest.Item) -> list[str]:
    """The names of a test and of what holds it, from below the file on."""
    return [
        node.name
        for node in item.listchain()
        if not isinstance(node, (pytest.Session, pytest.Directory, pytest.File))
    ]


def kill(process: subprocess.Popen[bytes]) -> None:
    """End the process and whatever it has started."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def status_text(code: int) -> str:
    """An exit status, or the signal that a negative one stands for, in words."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def log_reports(
    item: pytest.Item, nextitem: pytest.Item | None, reports: Iterable[pytest.TestReport]
) -> None:
    """Log the reports of a test that ran in another process, as if it had run here."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    # fixtures of tests before this one, which the next does not use, are still set up in this process
    following = None if item.session.shouldfail or item.session.shouldstop else nextitem
    left = call_info(lambda: item.session._setupstate.teardown_exact(following), "teardown")
    if left.excinfo is not None:
        item.ihook.pytest_runtest_logreport(report=pytest.TestReport.from_item_and_call(item, left))
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def failed_report(
    item: pytest.Item, message: str, reports: Iterable[pytest.TestReport]
) -> pytest.TestReport:
    """The report of a test whose process could not go on after these."""
    phase = next_phase(reports)
    return pytest.TestReport.from_item_and_call(
        item, call_info(lambda: pytest.fail(message, pytrace=False), phase)
    )


def report_from(item: pytest.Item, data: Any) -> Any:
    """The report of a test that another process has sent."""
    report = item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
    report.nodeid = item.nodeid  # a worker of xdist's has a group in it
    if isinstance(report.longrepr, list):
        report.longrepr = tuple(report.longrepr)  # of a skip: where and why
    return report


def record_warning(item: pytest.Item, data: dict[str, Any]) -> None:
    """Let pytest show a warning of another process."""
    category = getattr(sys.modules.get(data["module"]), data["category"], UserWarning)
    message = warnings.WarningMessage(data["message"], category, data["filename"], data["lineno"])
    location = tuple(data["location"]) if data["location"] else None
    item.config.hook.pytest_warning_recorded.call_historic(
        kwargs={
            "warning_message": message,
            "nodeid": item.nodeid,
            "when": "runtest",
            "location": location,
        }
    )


def next_phase(reports: Iterable[pytest.TestReport]) -> Literal["setup", "call", "teardown"]:
    """The first phase that was not reported of a test's last run."""
    outcomes = _last_run(reports)
    if "setup" not in outcomes:
        return "setup"
    return "teardown" if "call" in outcomes or outcomes["setup"] != "passed" else "call"


def has_ended(reports: Iterable[pytest.TestReport]) -> bool:
    """Whether these are all the reports of a test, which may run again where it fails (pytest-rerunfailures)."""
    return "teardown" in _last_run(reports)


def _last_run(reports: Iterable[pytest.TestReport]) -> dict[str | None, str]:
    """Outcomes of the run that a test is in, by phase: none yet, where it is to run again."""
    outcomes: dict[str | None, str] = {}
    for report in reports:
        if report.when == "setup":
            outcomes = {}
        outcomes[report.when] = report.outcome
    return {} if "teardown" in outcomes and "rerun" in outcomes.values() else outcomes


def call_info(function: Any, phase: Literal["setup", "call", "teardown"]) -> pytest.CallInfo[None]:
    """What pytest makes a report of: what a function does as a phase of a test."""
    return pytest.CallInfo.from_call(
        function, phase, reraise=(pytest.exit.Exception, KeyboardInterrupt)
    )


def excerpt(stderr: str) -> str:
    """From where faulthandler shows the line that crashed, else the last lines."""
    lines = stderr.rstrip().splitlines()
    start = next(
        (i for i, line in enumerate(lines) if line.startswith("Current thread")),
        max(len(lines) - _STDERR_LINES, 0),
    )
    return (
        "".join(f"\n  {line}" for line in ["its stderr:", *lines[start : start + _STDERR_LINES]])
        if lines
        else ""
    )


def last_lines(text: str) -> str:
    """The end of what a process has reported, indented, and how much comes before."""
    lines = text.splitlines()
    more = [f"… {len(lines) - _REPORT_LINES} lines before"] if len(lines) > _REPORT_LINES else []
    return "\n".join(f"  {line}" for line in [*more, *lines[-_REPORT_LINES:]])
